"""dualdnn as a C library: ``libcudnn.so.8`` whose functions are the documented calls of ``dualdnn.api.cudnn``.

``build.py`` compiles it (cffi's embedding mode), ``header.py`` writes the ``cudnn.h`` that clients compile with, both from the function
table. What runs inside the library, once a program has called it: ``entry.py`` (the border that no exception crosses), ``marshalling.py``
(one rule per parameter), ``objects.py`` (handles and descriptors by the pointers that C holds), ``pointers.py`` (memory by address).
"""
