"""Build dualdnn as a C library: ``libcudnn.so.8``, whose functions are the documented calls of ``dualdnn.api.cudnn``.

``build.py`` compiles the library with cffi's embedding mode. ``header.py`` writes the ``cudnn.h`` for clients. Both use
the function table. The following modules run inside the library after a program has called it:

- ``entry.py`` is the border that no exception crosses.
- ``marshalling.py`` converts arguments, with one rule per parameter.
- ``objects.py`` maps the pointers that C holds to handles and descriptors.
- ``pointers.py`` accesses memory by address.
"""
