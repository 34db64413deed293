"""Turns sources written for cuDNN into sources for MIOpen: ``dualdnn port`` (docs/porting.md).

``forms`` is the table of every call, type and enumerator. ``rewriting`` applies it to C, C++ and CUDA,
``python_clients`` to clients of ``dualdnn.api.cudnn``. ``dualdnn_port_miopen.h`` and ``.py`` go with the output.
"""
