"""Record calls of a library with their inputs and outputs, so that a machine without that library can judge it.

The format (version 1)
----------------------
A recording is one ``.npz`` file (a zip archive of ``.npy`` arrays, written by ``numpy.savez_compressed``) with

``calls``    uint8, the bytes of a UTF-8 JSON text (NaN and Infinity are spelt as Python's ``json`` spells them);
``memory``   uint8, all distinct blocks of memory, one after the other;
``offsets``  int64, block i is ``memory[offsets[i]:offsets[i + 1]]``.

The JSON text is ``{"format": "dualdnn recorded calls", "version": 1, "library": name, "library_version": what
cudnnGetVersion returned, "device": what it ran on, "records": [...]}``. A record is an object with

``id``         unique in the file;
``function``   the documented function;
``status``     the number that the function returned (see ``status_of``);
``arguments``  documented parameter name -> value, for every parameter except pure host outputs;
``memory``     list of [block before the call, block after it], null where the bytes were not kept; left out when empty;
``result``     what the function returned in host outputs: one value, or an object by name; left out where nothing was;
``note``       free text; left out when empty.

Values: null is NULL; numbers; lists; a string is the name of an enumerator (a number where it has no name); and

``{"handle": true}``                                    the library handle;
``{"descriptor": type, "calls": [[function, arguments], ...]}``  a descriptor that these calls have filled, the argument
                                                        left out of each is the descriptor itself; no calls: as created;
``{"memory": i, "offset": bytes, "bytes": size}``       part of the record's memory i; parts of one memory may overlap;
``{"memory_of": parameter}``                            that size argument gives the number of bytes, contents not kept;
``{"required": d, "was": n}``                           a size: n, which was d more than the library said it needed;
``{"unrecorded": text}``                                something that was not kept; such a call cannot be repeated.

A record with ``probe`` in place of ``arguments`` is one experiment with several calls, or with parameters that were not
kept by their documented names: ``probe`` is free JSON, ``arrays`` is name -> [NumPy type, shape, block].

``dualdnn conformance --subject library:PATH --record FILE`` writes such a file, ``--subject recorded:FILE`` judges it.
"""

from .model import (
    Block,
    Record,
    Recording,
    RecordingError,
    load_recording,
    packaged_recordings,
    save_recording,
    status_of,
)

__all__ = [
    "Block",
    "Record",
    "Recording",
    "RecordingError",
    "load_recording",
    "packaged_recordings",
    "save_recording",
    "status_of",
]
