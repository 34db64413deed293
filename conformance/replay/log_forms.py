"""Describe as data how releases of cuDNN write their API logs, and which documented arguments the logs lack."""

from __future__ import annotations

import html
import json
import re

# Each row is (version numbers of a major release, its last version whose logs are known).
READ = ((range(7000, 8000), 7605), (range(8000, 9000), 8907), (range(90000, 100000), 91900))
# Releases 7 and 8 write "(v8907)"; release 9 adds a second number: "(v91200 46)".
HEADER = re.compile(r"CuDNN \(v(\d+)(?: \d+)?\) function (\w+)\(\) called:")
ANY_HEADER = re.compile(r"CuDNN \(v([^)]{1,40})\)")  # It matches headers of unknown releases too.
# This matches the mark of a line, after any text that a collector or a quotation adds in front.
MARK = re.compile(r"^(?:.*?[\s>:#*\]|)/-])??([IiEeWwFf])!(?: |$)")


def _unquoted(found: re.Match[str]) -> str:
    """Return the text that a collector put into an object of JSON; another line stays as it is."""
    try:
        return str(json.loads(f'"{found[1]}"', strict=False)).rstrip("\r\n")
    except ValueError:
        return found[0]


# These patterns find what collectors, terminals, web pages and Markdown put into a line; each has its replacement.
DRESSED = (
    (re.compile(r'^\s*\{.*?"(?:log|line|message|MESSAGE|msg|textPayload)" ?: ?"((?:[^"\\]|\\.)*)".*\}\s*$'), _unquoted),
    (
        re.compile(r'^.*"([IiEeWwFf]! [^"]*?)(?:\\n)?"[\s,;\]]*$'),
        r"\1",
    ),  # the last quoted field of a table or of a list in JSON
    (
        re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])"),
        "",
    ),  # colours, titles, character sets
    (re.compile(r"</?(?:a|b|br|code|div|em|font|i|li|p|pre|span|strong|td|tr)(?:\s[^<>]*)?/?>", re.IGNORECASE), ""),
    (re.compile(r"&(?:\w+|#\d+|#[xX][0-9a-fA-F]+);"), lambda found: html.unescape(found[0])),
    (re.compile(r"[\u200b\u200c\u200d\u2060\ufeff]"), ""),  # zero-width characters and the byte order mark
    (re.compile(r"[\u00a0\u2000-\u200a\u202f\u3000]"), " "),  # spaces that no program writes
    (re.compile(r"\t"), "    "),
    (re.compile(r"\\([\\_*\[\]()#!>-])"), r"\1"),
)
# The process that wrote a line is named before its mark, as launchers, containers and the system's log name it.
ORIGIN = re.compile(
    r"\[(?:[A-Za-z]+[ _:=-]?)?\d+(?:,\d+)?\]|\b(?:rank|worker|gpu|pid|process|proc|node)[ _:=#-]*\d+|[\w.-]+[_-]\d+(?= *\|)",
    re.IGNORECASE,
)
# C type of a number -> its least and greatest value; other types have 64 bits
RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "unsigned": (0, (1 << 32) - 1), "unsigned int": (0, (1 << 32) - 1)}
WIDEST = (-(1 << 63), (1 << 64) - 1)
MESSAGES = "EWF"  # marks of messages, which have the header of a call but are not calls
# An argument may lack its name (axes of cudnnSetSeqDataDescriptor).
ARGUMENT = re.compile(r"(\w*): type=([\w\[\] *]+?)(?:; \w+=(.*?);?|:)\s*$")
LOCATION = re.compile(r"(\w+): location=(\w+); addr=(\w+);?\s*$")
BEHIND = re.compile(r"(Time|Process)\b")  # lines after a call's arguments: its end, and where it ran
NUMBERED = re.compile(r"[\w|]+ \((-?\d+|0[xX][0-9a-fA-F]+)\)")  # an enumerator, or flags, followed by the number
NULLS = ("NULL", "NULL_PTR", "0", "0x0", "None")

# name in other releases -> documented function with the same parameters
RENAMED = {"cudnnSetRNNDescriptor": "cudnnSetRNNDescriptor_v6"}
# function -> documented arguments that a log lacks
LACKING = {
    "cudnnSetTensorTransformDescriptor": ("destFormat",),
    "cudnnSetSeqDataDescriptor": ("seqLengthArraySize",),
}
# argument that a log lacks -> logged argument with this number of entries
COUNTED = {"seqLengthArraySize": "seqLengthArray"}
# function -> (arrays, the argument with the number of valid entries); release 7.3 logs more entries, with stray numbers
ENTRIES = {
    "cudnnSetRNNDataDescriptor": (("seqLengthArray",), "batchSize"),
    "cudnnSetTensorNdDescriptor": (("dimA", "strideA"), "nbDims"),
    "cudnnSetTensorNdDescriptorEx": (("dimA",), "nbDims"),
    "cudnnSetFilterNdDescriptor": (("filterDimA",), "nbDims"),
    "cudnnSetPoolingNdDescriptor": (("windowDimA", "paddingA", "strideA"), "nbDims"),
    "cudnnSetConvolutionNdDescriptor": (("padA", "filterStrideA", "dilationA"), "arrayLength"),
    "cudnnSetSpatialTransformerNdDescriptor": (("dimA",), "nbDims"),
}
# These setters change one value of a descriptor that an earlier call has set.
CHANGING = frozenset({
    "cudnnSetConvolutionGroupCount", "cudnnSetConvolutionMathType", "cudnnSetConvolutionReorderType", "cudnnSetRNNMatrixMathType",
    "cudnnSetRNNBiasMode", "cudnnSetRNNPaddingMode", "cudnnSetRNNProjectionLayers", "cudnnSetRNNAlgorithmDescriptor",
})  # fmt: skip


def plain(line: str) -> str:
    """Return a line of a log as its program wrote it, without additions by collectors and pages."""
    for form, instead in DRESSED:
        line = form.sub(instead, line)
    return line


def release_of(number: int) -> str:
    """Return a version number in readable form: 8907 is 8.9.7, 91200 is 9.12.0. Another number stays as it is."""
    if 9000 <= number < 90000:  # No release has such a number: release 9 writes five digits.
        return f"v{number}"
    major, rest = divmod(number, 10000 if number >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def is_read(number: int) -> bool:
    """Return whether logs of this version are read."""
    return any(number in versions for versions, _ in READ)


def is_known(number: int) -> bool:
    """Return whether this is not a later version of its major release than the last one whose logs are known."""
    return any(number in versions and number <= last for versions, last in READ)
