"""Test that ``dualdnn port`` translates numbers used as enumerators, or tells the user where it cannot."""

from __future__ import annotations

import pytest

pytest.importorskip("tree_sitter", reason="the porting tool needs tree-sitter: pip install 'dualdnn[port]'")
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.conformance import command_line
from dualdnn.conformance.port import forms, integers
from dualdnn.conformance.port.passing import passing_macros
from dualdnn.conformance.port.python_clients import port_python
from dualdnn.conformance.port.reached import port_c

HELPER = "dualdnnPortSetActivationDescriptor"


def ported(text, path="file.cu"):
    return port_c(path, text.encode(), forms.table())


def others(file):
    """Return what is left to a person, without places that may begin as 0."""
    return [each for each in file.left if getattr(each, "kind", "") != "zero"]


def in_function(statement, *parameters):
    return f"void f({', '.join(parameters)}) {{ {statement}; }}"


# (source, its translation)
TRANSLATED = [
    ("cudnnSetActivationDescriptor(a, 1, 0, 0.0)", f"{HELPER}(a, miopenActivationRELU, DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)"),
    ("cudnnSetActivationDescriptor(a, (1), 0x0, 0.0)", f"{HELPER}(a, (miopenActivationRELU), DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)"),
    ("cudnnSetPooling2dDescriptor(p, 1, 0, 2, 2, 0, 0, 2, 2)", "miopenSet2dPoolingDescriptor(p, miopenPoolingAverageInclusive, 2, 2, 0, 0, 2, 2)"),
    ("cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, 1, 0)", "miopenInitConvolutionDescriptor(c, miopenConvolution, 1, 1, 1, 1, 1, 1)"),
    ("cudnnSetTensor4dDescriptor(d, 0, (cudnnDataType_t)0, 1, 2, 3, 4)", "miopenSet4dTensorDescriptor(d, (miopenDataType_t)miopenFloat, 1, 2, 3, 4)"),
    ("cudnnDataType_t t = (cudnnDataType_t)0", "miopenDataType_t t = (miopenDataType_t)miopenFloat"),
    ("x = static_cast<cudnnDataType_t>(2)", "x = static_cast<miopenDataType_t>(miopenHalf)"),
    ("x = cudnnDataType_t(2)", "x = miopenDataType_t(miopenHalf)"),
    ("x = AS(cudnnDataType_t, 2)", "x = AS(miopenDataType_t, miopenHalf)"),
    ("x = (cudnnDataType_t)(b ? 0 : 2)", "x = (miopenDataType_t)(b ? miopenFloat : miopenHalf)"),
    ("cudnnSetActivationDescriptor(a, b ? 1 : CUDNN_ACTIVATION_TANH, 1, 0)", f"{HELPER}(a, b ? miopenActivationRELU : miopenActivationTANH, DUALDNN_PORT_PROPAGATE_NAN, 0)"),
    ("cudnnConvolutionFwdAlgo_t all[] = {(cudnnConvolutionFwdAlgo_t)0}", "miopenConvFwdAlgorithm_t all[] = {(miopenConvFwdAlgorithm_t)miopenConvolutionFwdAlgoImplicitGEMM}"),
]  # fmt: skip
IN_FILES = [
    ("#define HALF ((cudnnDataType_t)2)\n", "#define HALF ((miopenDataType_t)miopenHalf)\n"),
    ("#define SET(a) cudnnSetActivationDescriptor(a, 1, \\\n 0, 0.0)\n", f"#define SET(a) {HELPER}(a, miopenActivationRELU, \\\n DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)\n"),
    ("void g(cudnnDataType_t t = (cudnnDataType_t)2);", "void g(miopenDataType_t t = (miopenDataType_t)miopenHalf);"),
    ("template <cudnnDataType_t T = CUDNN_DATA_HALF> struct Of {}; Of<(cudnnDataType_t)2> of;", "template <miopenDataType_t T = miopenHalf> struct Of {}; Of<(miopenDataType_t)miopenHalf> of;"),
]  # fmt: skip
# C allows these without a cast; t, all, p and s have cuDNN types.
IN_C = [
    ("t = 2", "t = miopenHalf"),
    ("*p = 2", "*p = miopenHalf"),
    ("*p++ = 2", "*p++ = miopenHalf"),
    ("*(n ? p : all) = 2", "*(n ? p : all) = miopenHalf"),
    (
        "(cudnnSetActivationDescriptor)(0, 1, 0, 0.0)",
        f"({HELPER})(0, miopenActivationRELU, DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)",
    ),
    (
        "(&cudnnSetActivationDescriptor)(0, 1, 0, 0.0)",
        f"(&{HELPER})(0, miopenActivationRELU, DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)",
    ),
    (
        "typedef void (*taker)(cudnnDataType_t); taker takers[2]; takers[0](2)",
        "typedef void (*taker)(miopenDataType_t); taker takers[2]; takers[0](miopenHalf)",
    ),
    ("*(p ?: all) = 2", "*(p ?: all) = miopenHalf"),
    ("*(p = all) = 2", "*(p = all) = miopenHalf"),
    ("all[1] = 2", "all[1] = miopenHalf"),
    ("s->type = 2", "s->type = miopenHalf"),
    ("struct S other = {.type = 2}", "struct S other = {.type = miopenHalf}"),
    ("cudnnDataType_t u = 2", "miopenDataType_t u = miopenHalf"),
    ("cudnnDataType_t many[] = {0, 2}", "miopenDataType_t many[] = {miopenFloat, miopenHalf}"),
    (
        "cudnnDataType_t many[3] = {[1] = 2, 0, [0] = 2}",
        "miopenDataType_t many[3] = {[1] = miopenHalf, miopenFloat, [0] = miopenHalf}",
    ),
    (
        "cudnnDataType_t many[2][2] = {{0, 0}, [1] = {2, [1] = 1}}",
        "miopenDataType_t many[2][2] = {{miopenFloat, miopenFloat}, [1] = {miopenHalf, [1] = miopenDouble}}",
    ),
    (
        "struct S others[] = {[1] = {2, 2}, [0] = {0}}",
        "struct S others[] = {[1] = {miopenHalf, 2}, [0] = {miopenFloat}}",
    ),
    ("*(all + 1) = 2", "*(all + 1) = miopenHalf"),
    ("g((__typeof__(t))2)", "g((__typeof__(t))miopenHalf)"),
    ("p = (cudnnDataType_t[]){0, 2}", "p = (miopenDataType_t[]){miopenFloat, miopenHalf}"),
    ("if (t == 2) g()", "if (t == miopenHalf) g()"),
    ("switch (t) { case 2: g(); }", "switch (t) { case miopenHalf: g(); }"),
    ("take(2)", "take(miopenHalf)"),
    ("status = 3", "status = miopenStatusBadParm"),
    ("if (status == 0) g()", "if (status == 0) g()"),
    ("{ int t; t = 2; }", "{ int t; t = 2; }"),
    ("x = 2", "x = 2"),  # The parameter of a prototype is not a variable of the file.
    ("n = 2", "n = 2"),
]
C = """struct S {{ cudnnDataType_t type; int n; }};
void take(cudnnDataType_t x);
cudnnDataType_t of(void) {{ return 2; }}
void f(cudnnDataType_t t, cudnnDataType_t *p, cudnnDataType_t all[2], struct S *s, cudnnStatus_t status, int n) {{
{}; }}
"""


# The other operand is an enumerator whose type must be inferred: a result, an integer that holds it, auto.
CARRIED = [
    ("if (call() == 3) g()", "if (call() == miopenStatusBadParm) g()"),
    ("if (3 == cudnnCreate(&h)) g()", "if (miopenStatusBadParm == miopenCreate(&h)) g()"),
    ("switch ((int)call()) { case 2: g(); }", "switch ((int)call()) { case miopenStatusAllocFailed: g(); }"),
    ("switch (static_cast<int>(cudnnCreate(&h))) { case 2: g(); }", "switch (static_cast<int>(miopenCreate(&h))) { case miopenStatusAllocFailed: g(); }"),
    ("int ok = call(); if (ok == 3) g()", "int ok = call(); if (ok == miopenStatusBadParm) g()"),
    ("int ok; if ((ok = cudnnCreate(&h)) == 3) g()", "int ok; if ((ok = miopenCreate(&h)) == miopenStatusBadParm) g()"),
    ("const auto ok = call(); if (ok != 3) g()", "const auto ok = call(); if (ok != miopenStatusBadParm) g()"),
    ("if (auto ok = call(); ok == 3) g()", "if (auto ok = call(); ok == miopenStatusBadParm) g()"),
    ("if ((int)t == 2) g()", "if ((int)t == miopenHalf) g()"),
    ("if (std::to_underlying(t) == 2) g()", "if (std::to_underlying(t) == miopenHalf) g()"),
    ("EXPECT_EQ(3, call())", "EXPECT_EQ(miopenStatusBadParm, call())"),
    ("if (perf->status == 3) g()", "if (perf->status == miopenStatusBadParm) g()"),
    ("t = std::bit_cast<cudnnDataType_t>(2)", "t = std::bit_cast<miopenDataType_t>(miopenHalf)"),
    ("t = (Alias)2", "t = (Alias)miopenHalf"),
    ("t = (decltype(t))2", "t = (decltype(t))miopenHalf"),
    ("if (CUDNN_DATA_HALF == 2) g()", "if (miopenHalf == miopenHalf) g()"),
    ("if (pointer(&h) == 3) g()", "if (pointer(&h) == miopenStatusBadParm) g()"),
    # The type comes from a method, a function pointer, a lambda, a container or a field.
    ("if (c.get() == 2) g()", "if (c.get() == miopenHalf) g()"),
    ("switch (static_cast<int>(pc->get())) { case 2: g(); }", "switch (static_cast<int>(pc->get())) { case miopenHalf: g(); }"),
    ("if ((call)() == 3 || (*pointer)(&h) == 3) g()", "if ((call)() == miopenStatusBadParm || (*pointer)(&h) == miopenStatusBadParm) g()"),
    ("auto made = &call; if (made() == 3) g()", "auto made = &call; if (made() == miopenStatusBadParm) g()"),
    ("auto made = []() -> cudnnDataType_t { return 2; }; if (made() == 2) g()", "auto made = []() -> miopenDataType_t { return miopenHalf; }; if (made() == miopenHalf) g()"),
    ("std::function<cudnnStatus_t()> made; if (made() == 3) g()", "std::function<miopenStatus_t()> made; if (made() == miopenStatusBadParm) g()"),
    ("if (all[0] == 2 || all.front() == 2) g()", "if (all[0] == miopenHalf || all.front() == miopenHalf) g()"),
    ("for (auto each : all) if (each == 2) g()", "for (auto each : all) if (each == miopenHalf) g()"),
    ("std::pair<cudnnDataType_t, int> both; if (both.first == 2 && both.second == 2) g()", "std::pair<miopenDataType_t, int> both; if (both.first == miopenHalf && both.second == 2) g()"),
    ("if (numbered[t] == 2 || keyed[t] == 2) g()", "if (numbered[t] == miopenHalf || keyed[t] == 2) g()"),
    ("if (K::type == 2 && B::type == 2) g()", "if (K::type == miopenHalf && B::type == 2) g()"),
    ("if (a.type == 2 && b.type == 2) g()", "if (a.type == miopenHalf && b.type == 2) g()"),
    ("A both[] = {{(cudnnDataType_t)2, 2}}", "A both[] = {{(miopenDataType_t)miopenHalf, 2}}"),
    ("t = static_cast<decltype(a.type)>(2)", "t = static_cast<decltype(a.type)>(miopenHalf)"),
    ("auto made = new cudnnDataType_t((cudnnDataType_t)2)", "auto made = new miopenDataType_t((miopenDataType_t)miopenHalf)"),
    ("A made = {t}", "A made = {t}"),
    ("B made = {}", "B made = {}"),
    # Success is 0, the smallest status, in both libraries.
    ("if (call() > 0 || !status || status != 0) g()", "if (call() > 0 || !status || status != 0) g()"),
    ("bool bad = call(); while (status) g()", "bool bad = call(); while (status) g()"),
    ("n = cudnnGetVersion() / 1000", "n = dualdnnPortGetVersion() / 1000"),
    ("numbers[2] = keyed[t]", "numbers[2] = keyed[t]"),
    ("memcpy(&t, &other, sizeof t)", "memcpy(&t, &other, sizeof t)"),
    ("p = (cudnnDataType_t *)malloc(8)", "p = (miopenDataType_t *)malloc(8)"),
]  # fmt: skip
CARRYING = """#define IS_BAD(s) ((s) == 8)
#define FAILED(s) do {{ int e = (s); if (e != 0) g(e); }} while (0)
cudnnStatus_t call(); using Alias = cudnnDataType_t; cudnnStatus_t (*pointer)(cudnnHandle_t *); void take(int n);
std::map<cudnnDataType_t, int> keyed; std::map<int, cudnnDataType_t> numbered; std::map<int, std::string> names; std::vector<cudnnDataType_t> all;
template <int T> struct Of {{}}; struct A {{ cudnnDataType_t type; int n; }}; extern A a; struct B {{ int type; }} b; using Number = int; int count();
struct C {{ cudnnDataType_t get() const; }} c, *pc; struct K {{ static constexpr cudnnDataType_t type = CUDNN_DATA_HALF; }};
#define SUM(x) ((x) + 1)
#define HALF CUDNN_DATA_HALF
void f(cudnnDataType_t t, cudnnDataType_t other, cudnnDataType_t *p, cudnnStatus_t status, int n, int *numbers, cudnnConvolutionFwdAlgoPerf_t *perf) {{ {}; }}
"""
# Numbers of enumerators that leave their type: (source, where, whether a person has to port it).
TAKEN = [
    *((source, "t", True) for source in ("n = t", "int m = t", "n = (int)t", "n = int(t)", "take(t)", "n = t + 1", "n = 1 << t", "n = numbers[t]", "t++", "if (t) g()",
                                          "if (!t) g()", "n = t ? 1 : 0", "for (; t;) g()", "do g(); while (t)", "if (t > other) g()", "n = t & 3", "names.at(t)", "t += 1", "hash(static_cast<size_t>(t))")),
    *((source, "&t", True) for source in ("memcpy(&t, &n, 4)", "memset(&t, 0, 4)", "memcmp(&t, &n, 4)", "fread(&t, 4, 1, file)", "scanf(format, &t)", "int *q = (int *)&t")),
    ("t = reinterpret_cast<cudnnDataType_t &>(n)", "n", True), ("t = *(cudnnDataType_t *)&n", "&n", True),
    ("int all[] = {CUDNN_DATA_HALF, 1}", "CUDNN_DATA_HALF", True), ("constexpr int half = CUDNN_DATA_HALF", "CUDNN_DATA_HALF", True),
    ("enum { MINE = CUDNN_DATA_HALF }", "CUDNN_DATA_HALF", True), ("std::map<int, int> m = {{CUDNN_DATA_HALF, 2}}", "CUDNN_DATA_HALF", True),
    ("Of<CUDNN_DATA_HALF> made", "CUDNN_DATA_HALF", True), ("cudnnDataType_t u{}", "u", True), ("t = cudnnDataType_t()", "cudnnDataType_t()", True),
    ("union { cudnnDataType_t type; int n; } u", "type", True), ("IS_BAD(status)", "status", True), ("status & 3", "status", True), ("if (status > 3) g()", "status", True),
    *((source, "t", True) for source in ("int m(t)", "float m = t", "Number m = t", "std::int64_t m = t", "b.type = t", "B m = {t}", "std::underlying_type_t<cudnnDataType_t> m = t", "SUM(t)",
                                          "n = std::max<int>(t, 1)", "auto m = [&](cudnnDataType_t t) -> int { return t; }")),
    *((source, "CUDNN_DATA_HALF", True) for source in ("std::atomic<int> m(CUDNN_DATA_HALF)", "Val<int, CUDNN_DATA_HALF> m", "Of<static_cast<int>(CUDNN_DATA_HALF)> m",
                                                       "int m[] = {[CUDNN_DATA_HALF] = 4}", "n = numeric_cast<int>(CUDNN_DATA_HALF)")),
    ("n = HALF", "HALF", True), ("n = c.get()", "c.get()", True), ("switch (n) { case CUDNN_DATA_HALF: g(); }", "n", True), ("if (count() == CUDNN_DATA_HALF) g()", "count()", True),
    ("switch (t) { case 0 ... 2: g(); }", "0 ...", True), ("t = as<cudnnDataType_t>(2)", "2", True), ("auto m = std::make_unique<cudnnDataType_t>()", "std::make_unique<cudnnDataType_t>()", True),
    ("cudnnDataType_t m[3] = {}", "m[3]", True), ("auto m = new cudnnDataType_t()", "new cudnnDataType_t()", True), ("struct D { cudnnDataType_t m{}; }", "m", True),
    ("struct D { cudnnDataType_t m; D() : m() {} }", "m", True), ("int *m = (int *)(void *)&t", "&t", True),
    ("n = std::get<0>(std::make_pair(t, n))", "std::get<0>(std::make_pair(t, n))", True), ("n = keyed.begin()->first", "keyed.begin()->first", True),
    ("auto [type, m] = a; n = type", "type", True), ("n = [&] { return t; }()", "[&] { return t; }()", True), ("if (t <=> 2) g()", "t", True),
    ("std::cout << 1 << t", "t", False),
    ("n = status", "status", False), ('printf("%d", status)', "status", False), ('printf("%d", t)', "t", False), ("std::cout << t", "t", False), ("exit(status)", "status", False),
    ("names.find(std::to_string(t))", "t", False),
]  # fmt: skip


# Macros that are their argument, as it is or cast, by a type that they name or take.
PASSED = [
    "if (AS(int, t) == @2 || @2 == SWAPPED(t, unsigned int) || THROUGH(int, cudnnDataType_t, t) != @2) g()",
    "if (NUMBER(t) == @2 || @2 == VIA(t) || SAME(t) != @2 || SAME(b ? t : other) == @2 || OLD(t) == @2) g()",
    "switch (AS(int, t)) { case @2: g(); }",
    "switch (NUMBER(t)) { case @2: g(); }",
    "switch (SAME(t)) { case @2: g(); }",
    "auto m = SAME(t); if (m == @2) g()",
    "take(KIND(@2)); take(SAME(@2)); take(SAME(b ? @2 : t)); take(SWAPPED(@2, cudnnDataType_t)); take(NUMBER(@2)); take((int)@2)",
    "t = SAME(@2); cudnnDataType_t all[] = {KIND(@2), SAME(@2)}; if (KIND(n) == @2) g()",
    "cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, SAME(@2), 2, 2, 2, 2)",
    "if (MASKED(n) == 2 || SAME(n) == 2 || AS(int, n) == 2) g()",
]
PASSING = """#define AS(T, x) ((T)(x))
#define SWAPPED(x, T) static_cast<T>(x)
#define THROUGH(T, U, x) ((T)(U)(x))
#define NUMBER(x) ((int)(x)) // a number
#define OLD(x) \\
  int((x))
#define VIA(x) (NUMBER(x))
#define SAME(x) (x)
#define KIND(x) ((cudnnDataType_t)(x))
#define MASKED(x) ((x) & 3)
void take(cudnnDataType_t t);
void f(cudnnDataType_t t, cudnnDataType_t other, bool b, int n, cudnnTensorDescriptor_t d) {{ {}; }}
"""


# C++ deduces these types. Only numbers marked @ are enumerators; numbers compared with integers stay.
DEDUCED = [
    "auto made = [] { return CUDNN_DATA_HALF; }; if (made() == @2) g()",
    "auto made = [](int n) { if (n) return CUDNN_DATA_HALF; return CUDNN_DATA_FLOAT; }; if (made(2) == @2) g()",
    "if ([] { return CUDNN_DATA_HALF; }() == @2 || deduced() == @2 || arrow() == @2) g()",
    "auto [type, m] = both; if (type == @2 && m == 2) g()",
    "const auto &[type, m] = a; switch (type) { case @2: if (m == 2) g(); }",
    "auto [type, m] = std::make_pair(t, n); if (type == @2 && m == 2) g()",
    "for (const auto &[key, value] : keyed) if (key == @2 && value == 2) g()",
    "if (std::get<0>(both) == @2 && std::get<1>(both) == 2) g()",
    "if (std::get<cudnnDataType_t>(either) == @2 || *std::get_if<1>(&either) == @2) g()",
    "if (keyed.begin()->first == @2 && keyed.begin()->second == 2) g()",
    "auto it = numbered.find(2); if (it->first == 2 && it->second == @2) g()",
    "std::map<int, cudnnDataType_t>::const_iterator it; if ((*it).second == @2) g()",
    "for (auto it = std::begin(all); it != all.end(); ++it) if (*it == @2) g()",
    "auto copy = both; auto &same = all; auto *q = &t; if (copy.first == @2 || same[2] == @2 || *q == @2) g()",
    "if (maybe == @2 || *maybe == @2 || maybe.value_or(other) == @2 || std::min(t, other) == @2) g()",
    "if (aliased.first == @2 || owned->type == @2 || functor() == @2 || converted == @2) g()",
    "if (numbered.at(2) == @2 || (c.*method)() == @2 || std::invoke([&] { return t; }) == @2) g()",
    "n = std::count(all.begin(), all.end(), @2); if (std::equal_to<>{}(t, @2)) g()",
    "auto test = [](auto s) { return s == @2; }; test(t)",
    "std::for_each(all.begin(), all.end(), [k = t](auto each) { if (each == @2 || k == @2) g(); })",
    "std::vector v{t, other}; std::tuple made(n, t); auto listed = {t, other}; if (v[2] == @2 || std::get<1>(made) == @2 || *listed.begin() == @2) g()",
    "auto type = unknown(); cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, type, 2, 2, 2, 2); if (type == @2) g()",
    "decltype(auto) type = c.get(); if (auto s = c.get()) { if (s == @2 || type == @2) g(); }",
    "if (w.half()) g()",
]
DEDUCING = CARRYING.replace(
    "void f(",
    """using Pair = std::pair<cudnnDataType_t, int>; extern Pair both, aliased; std::variant<int, cudnnDataType_t> either; std::optional<cudnnDataType_t> maybe;
struct F {{ cudnnDataType_t operator()() const; }} functor; struct G {{ operator cudnnDataType_t() const; }} converted; std::unique_ptr<A> owned;
auto deduced() {{ return CUDNN_DATA_HALF; }} auto arrow() -> cudnnDataType_t; cudnnDataType_t (C::*method)() const;
struct W {{ cudnnDataType_t type; bool half() {{ return this->type == @2; }} }};
extern W w;
void f(""",
)


@pytest.mark.parametrize("source", DEDUCED)
def test_numbers_become_enumerators_of_a_deduced_type(source):
    text = DEDUCING.format(source)
    file, wanted = ported(text.replace("@", "")), ported(text.replace("@2", "CUDNN_DATA_HALF"))
    assert file.after.decode() == wanted.after.decode() and not others(file)


@pytest.mark.parametrize("source", PASSED)
def test_numbers_become_enumerators_through_a_macro_argument(source):
    text = PASSING.format(source)
    file, wanted = ported(text.replace("@", "")), ported(text.replace("@2", "CUDNN_DATA_HALF"))
    assert file.after.decode() == wanted.after.decode()
    # The body of KIND may be used by another file, and KIND(n) has a number that is not known.
    assert {note.message.partition(" ")[0] for note in file.left} <= {"x", "n"}


def test_a_macro_with_two_definitions_is_not_followed():
    assert passing_macros(b"#define SAME(x) (x)\n#define TWO(x) (x)\n#define TWO(x) -x\n") == {b"SAME": ("", 0)}


@pytest.mark.parametrize("source", ["n = AS(int, t)", "take_number(AS(int, t))", "n = NUMBER(t)", "n = SAME(t)"])
def test_an_enumerator_that_a_macro_makes_a_number_is_left(source):
    file = ported("void take_number(int n);\n" + PASSING.format(source))
    assert any("stands for its number here" in note.message and note.line > 10 for note in file.left)


@pytest.mark.parametrize(
    "given", ["(int)n", "-n", "!n", "~0", "'a'", "0b1", "08", "1.0", "sizeof n", "n = 1", "AS(int, n)"]
)
def test_a_number_that_is_not_known_is_left(given):
    source = in_function(f"cudnnSetActivationDescriptor(a, {given}, CUDNN_PROPAGATE_NAN, 0)", "int n")
    assert any("is a number of cudnnActivationMode_t" in note.message for note in ported(source, "file.c").left)


@pytest.mark.parametrize("source, wanted", CARRIED)
def test_numbers_combined_with_an_enumerator_are_translated(source, wanted):
    file = ported(CARRYING.format(source))
    assert f" {{ {wanted}; }}\n" in file.after.decode()
    assert not others(file)


RECORDS = """struct S { cudnnDataType_t type; int n; }; struct P { cudnnPoolingMode_t mode; cudnnDataType_t *at; };
struct N { int n; struct S s; cudnnDataType_t all[2]; }; struct H { struct S s; };
"""
ZEROS_PRELUDE = (
    "struct S; void take(struct S); extern int n; typedef cudnnDataType_t kind_t;\n#define KIND cudnnDataType_t\n"
)
# Each has a place that may begin as 0, however the rest of the program makes it: (source, where).
ZEROS = [
    ("cudnnDataType_t t;", "t"), ("static cudnnActivationMode_t m;", "m"), ("static kind_t t;", "t"), ("KIND t;", "t"),
    ("void f(void) { static cudnnDataType_t t; }", "t"), ("void f(void) { static _Thread_local kind_t t; }", "t"),
    ("struct S { int n; cudnnDataType_t type; };", "type"), ("typedef struct { kind_t all[2]; } S;", "all[2]"), ("struct N { struct { KIND t; } s; };", "t"),
    ("cudnnDataType_t all[3] = {2};", "all[3]"), ("cudnnDataType_t all[] = {[1] = 2};", "all[]"), ("typedef cudnnDataType_t two[2];", "two[2]"),
    ("cudnnDataType_t all[COUNT] = {2};", "all[COUNT]"), ("cudnnDataType_t all[2][2] = {{2, 2}};", "all[2][2]"),
    ("#define STATE(name) cudnnDataType_t name;\n", "name"), ("#define STATE static kind_t t\n", "t"), ("#define S struct S { KIND t; }\n", "t"),
    ("#ifdef A\ncudnnDataType_t t;\n#endif", "t"), ("API static cudnnDataType_t t;", "cudnnDataType_t"), ("struct S { FIELD(cudnnDataType_t, t) };", "cudnnDataType_t"),
    ("STATIC(kind_t)", "kind_t"), ("static DECLARE(const kind_t, t);", "const kind_t"), ("ATTRIBUTE(3) cudnnDataType_t t;", "t"), ("static const cudnnDataType_t t", "t"),
]  # fmt: skip
ZEROS_OF_CPP = [
    *((f"{made};", f"{kind}<cudnnDataType_t>") for made, kind in [("std::vector<cudnnDataType_t> v(3)", "vector"), ("auto v = std::deque<cudnnDataType_t>(3)", "deque"),
        ("using V = std::list<cudnnDataType_t>", "list"), ("struct D : Of<cudnnDataType_t> {}", "Of"), ("static const Of<cudnnDataType_t> d", "Of")]),
    ("std::array<cudnnDataType_t, 2> a;", "array<cudnnDataType_t, 2>"), ("std::map<int, kind_t> m;", "map<int, kind_t>"), ("auto s = std::make_unique<KIND[]>(n);", "make_unique<KIND[]>"),
    ("cudnnDataType_t f() { return {}; }", "return {};"), ("void g(cudnnDataType_t t); void f() { g({}); }", "{}"), ("namespace m { cudnnDataType_t t; }", "t"),
    ("extern kind_t x; static decltype(x) t;", "t"), ("void f(cudnnDataType_t t = {});", "cudnnDataType_t t = {}"), ("struct D { cudnnDataType_t m{}; };", "m"), ("struct D { cudnnDataType_t t; D() {} };", "t"), ('extern "C" { cudnnDataType_t t; }', "t"),
]  # fmt: skip
# These have no initial value, or another place has their note, or 0 is the same enumerator in both libraries.
NO_ZEROS = [
    "extern cudnnDataType_t t;", "static cudnnDataType_t *p;", "static cudnnPoolingMode_t m;", "void f(void) { cudnnDataType_t t; struct S s; }", "cudnnDataType_t f(void);",
    "static cudnnStatus_t s;", "struct P { cudnnPoolingMode_t m; cudnnDataType_t *at; };", "cudnnDataType_t all[2][2] = {2, 2, 2, 2};", "#define F() do { cudnnDataType_t t; take(t); } while (0)\n",
]  # fmt: skip
NO_ZEROS_OF_CPP = [
    "struct D { cudnnDataType_t t = CUDNN_DATA_HALF; };", "struct D { cudnnDataType_t t; D() : t(CUDNN_DATA_HALF) {} };", "std::map<cudnnDataType_t, int> m;",
    "void f(std::vector<cudnnDataType_t> &v, std::vector<cudnnDataType_t> w) { const std::vector<cudnnDataType_t> &x = v; }", "auto t = static_cast<cudnnDataType_t>(2);",
]  # fmt: skip


@pytest.mark.parametrize(
    "path, source, where",
    [
        *(("f.c", *each) for each in [*ZEROS, ("static __typeof__(CUDNN_DATA_HALF) t;", "t")]),
        *(("f.cu", *each) for each in [*ZEROS, *ZEROS_OF_CPP]),
    ],
)
def test_a_place_that_may_begin_as_0_is_left_to_a_person(path, source, where):
    """A program can make zeros in many ways, so the note is at the declaration of what may begin as 0."""
    left = ported(ZEROS_PRELUDE + source, path).left
    assert left and all(note.message.startswith(f"{where} is CUDNN_") for note in left)


@pytest.mark.parametrize(
    "path, source", [*(("f.c", each) for each in NO_ZEROS), *(("f.cu", each) for each in [*NO_ZEROS, *NO_ZEROS_OF_CPP])]
)
def test_places_that_begin_as_no_other_enumerator_are_not_noted(path, source):
    assert not ported(ZEROS_PRELUDE + source, path).left


@pytest.mark.parametrize("made, is_left", [
    ("calloc(2, 4)", True), ("zeroed(8)", True), ("arena", True), ("malloc(8)", False), ("other", False), ("types()", False),
])  # fmt: skip
@pytest.mark.parametrize(
    "given", ["cudnnDataType_t *p = {}", "cudnnDataType_t *p; p = {}", "p = (cudnnDataType_t *){}"]
)
def test_memory_that_something_else_made_is_left_to_a_person(given, made, is_left):
    text = "cudnnDataType_t *types(void);\nvoid f(void *arena, cudnnDataType_t *other) {{ {}; }}"
    assert bool(ported(text.format(given.format(made)), "f.c").left) == is_left


def test_a_type_means_the_same_in_each_file_of_a_tree(tmp_path, capsys):
    """A header in another folder, one that includes another, and itself, tells what numbers and zeros mean."""
    for name, text in {
        "include/base.h": '#include "state.h"\n#include <cudnn.h>\ntypedef cudnnDataType_t kind_t;\n#define KIND kind_t\n#define AS_INT(x) ((int)(x))\n',
        "include/state.h": '#include "base.h"\nstruct S { int n; KIND t; }; void take(kind_t t); extern cudnnActivationMode_t mode; typedef void (*taker)(kind_t);\n'
        "#define SET(n, t) do { take(t); } while (0)\n",
        "src/client.c": "#include <state.h>\nstatic KIND zero;\nvoid f(struct S *s, taker other) {\n"
        "  struct S made = {1, 2}; take(2); other(2); s->t = 2; mode = 1; if (AS_INT(s->t) == 2) s->n = s->t;\n  SET(2, 2);\n}\n",
    }.items():
        tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    assert command_line.main(["port", str(tmp_path), "--in-place"]) == 1
    after = tmp_path.joinpath("src/client.c").read_text().splitlines()
    assert after[4] == "  SET(2, miopenHalf);" and after[3] == (
        "  struct S made = {1, miopenHalf}; take(miopenHalf); other(miopenHalf); s->t = miopenHalf; mode = miopenActivationRELU;"
        " if (AS_INT(s->t) == miopenHalf) s->n = s->t;"
    )
    said = [line.split("/")[-1].split(": MIOpen")[0] for line in capsys.readouterr().err.splitlines()]
    assert said[:3] == [
        "state.h:2:24: zero: t is CUDNN_DATA_FLOAT where it begins as 0",
        "client.c:2:13: zero: zero is CUDNN_DATA_FLOAT where it begins as 0",
        "client.c:4:96: integer: s->t stands for its number here",
    ]


@pytest.mark.parametrize("source, wanted", [
    ("struct S s = {0};", "struct S s = {miopenFloat};"),
    ("struct N n = {1, 0, 2, 2, 2};", "struct N n = {1, miopenFloat, 2, miopenHalf, miopenHalf};"),
    ("struct N n[] = {{1, {2, 2}, {0, 2}}};", "struct N n[] = {{1, {miopenHalf, 2}, {miopenFloat, miopenHalf}}};"),
    ("struct H h = {0};", "struct H h = {miopenFloat};"),
    ("struct N n = {.s = {2}, .all = {0, 2}};", "struct N n = {.s = {miopenHalf}, .all = {miopenFloat, miopenHalf}};"),
    ("struct N n = {.s.type = 0, .all = {2, 2}};", "struct N n = {.s.type = miopenFloat, .all = {miopenHalf, miopenHalf}};"),
    ("void f(void) { take((struct S){0}); }", "void f(void) { take((struct S){miopenFloat}); }"),
])  # fmt: skip
def test_numbers_in_lists_become_enumerators_of_their_members(source, wanted):
    """Inner braces may be left out."""
    file = ported(RECORDS + source, "f.c")
    assert file.after.decode().endswith(wanted) and not others(file)


@pytest.mark.parametrize("path, source, wanted", [
    ("f.c", "typedef void (*F)(int, cudnnDataType_t); void f(F p, int t) { p(2, 2); (*p)(2, 2); }", "p(2, miopenHalf); (*p)(2, miopenHalf);"),
    ("f.c", "typedef void F(cudnnDataType_t); struct T { F *p; }; void f(struct T *t) { t->p(2); }", "t->p(miopenHalf);"),
    ("f.c", "void g(n, t) int n; cudnnDataType_t t; { if (t == 2) g(2, 2); } void f(void) { g(2, 2); }", "if (t == miopenHalf) g(2, miopenHalf); } void f(void) { g(2, miopenHalf);"),
    ("f.cu", "using F = void (*)(cudnnDataType_t t, int); void f(F p) { p(2, 2); }", "p(miopenHalf, 2);"),
    ("f.cu", "std::function<void(const cudnnDataType_t, cudnnDataType_t *)> p; void f() { p(2, q); }", "p(miopenHalf, q);"),
    ("f.cu", "void g(int, cudnnDataType_t); void f() { auto p = &g; p(2, 2); }", "p(2, miopenHalf);"),
    ("f.cu", "void f(cudnnActivationDescriptor_t a) { auto p = &cudnnSetActivationDescriptor; p(a, 1, 0, 0.0); }",
     "p(a, miopenActivationRELU, DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0);"),
])  # fmt: skip
def test_numbers_that_a_pointer_or_an_old_definition_takes(path, source, wanted):
    file = ported(source, path)
    assert wanted in file.after.decode() and not others(file)


def test_an_enumerator_in_a_condition_of_the_preprocessor_is_left():
    file = ported("#if CUDNN_DATA_HALF == 2 && CUDNN_VERSION > 7000\nint n;\n#elif CUDNN_DATA_FLOAT\n#endif\n")
    assert [(note.line, note.message.partition(" ")[0]) for note in file.left] == [
        (1, "CUDNN_DATA_HALF"),
        (3, "CUDNN_DATA_FLOAT"),
    ]


@pytest.mark.parametrize("source, where, is_open", TAKEN)
def test_numbers_that_leave_their_type_are_noted(source, where, is_open):
    """Each such number gets a note; it stays open unless it only becomes text or stays a status."""
    file = ported(CARRYING.format(source))
    found = [note for note in file.notes if note.message.startswith(f"{where} ")]
    assert found and {note.is_open for note in found} == {is_open} and (is_open or not others(file))


def test_numbers_that_a_macro_compares_or_counts_with_are_not_noted():
    text = "#define TYPE(x) (sizeof(x) == 2 ? CUDNN_DATA_HALF : all[(n) - 1])\n#define DOUBLE ((cudnnDataType_t)1)\n"
    assert not ported(text + in_function("cudnnDataType_t t = TYPE(x); t = DOUBLE"), "file.c").left


def test_a_status_that_is_compared_with_0_by_a_macro_is_not_noted():
    assert not [note for note in ported(CARRYING.format("FAILED(status)")).notes if "status" in note.message]


def test_numbers_given_to_a_macro_are_what_its_body_takes_them_as():
    """A macro's body decides the type of its arguments. The body gets a note, because another file may use the macro."""
    text = "#define SET(d, type, n) cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, type, n, 1, 1, 1)\n#define AS(n) ((cudnnDataType_t)(n))\n"
    file = ported(text + in_function("SET(d, 2, 2); t = AS(2)"))
    assert in_function("SET(d, miopenHalf, 2); t = AS(miopenHalf)") in file.after.decode()
    assert [note.message for note in file.left] == [
        "n is a number of cudnnDataType_t: MIOpen numbers its enumerators otherwise"
    ]


def test_macros_and_defaults_carry_enumerators():
    text = "#define CHECK(x) do { cudnnStatus_t s = (x); if (s == 3) g(); } while (0)\nvoid f(int t = CUDNN_DATA_HALF) { if (t == 2) g(); }\n"
    text += "template <int T> struct O {}; template <cudnnDataType_t T> bool h() { return T == 2; }"
    after = ported(text).after.decode()
    assert "{ return T == miopenHalf; }" in after
    assert "if (s == miopenStatusBadParm) g()" in after and "if (t == miopenHalf) g()" in after


@pytest.mark.parametrize("source, wanted", TRANSLATED)
def test_known_numbers_become_enumerators(source, wanted):
    file = ported(in_function(source))
    assert file.after.decode() == in_function(wanted)
    assert {note.kind for note in file.notes} == {"check"} and not others(file)


@pytest.mark.parametrize("source, wanted", IN_FILES)
def test_known_numbers_outside_of_functions(source, wanted):
    file = ported(source)
    assert file.after.decode() == wanted and not others(file)


# (source, its translation) of numbers that only the preprocessor brings to an enumerator; t and take have cuDNN types.
THROUGH_MACROS = [
    ("#define ROWS(X) X(a, 2) X(b, 0)\n#define ROW(n, v) {#n, v},\nstruct Q r[] = {ROWS(ROW)};", "#define ROWS(X) X(a, miopenHalf) X(b, miopenFloat)\n#define ROW(n, v) {#n, v},\nstruct Q r[] = {ROWS(ROW)};"),
    ("#define ROWS(X) X(a, 2) X(b, 0)\n#define ROW(n, v) take(v);\nvoid f(void) { ROWS(ROW) }", "#define ROWS(X) X(a, miopenHalf) X(b, miopenFloat)\n#define ROW(n, v) take(v);\nvoid f(void) { ROWS(ROW) }"),
    ("#define ROWS(X) X(a, 2) /* half,\n so (far */ \\\n X(b, 0) /* float */\n#define ROW(n, v) take(v);\nvoid f(void) { ROWS(ROW) }", "#define ROWS(X) X(a, miopenHalf) /* half,\n so (far */ \\\n X(b, miopenFloat) /* float */\n#define ROW(n, v) take(v);\nvoid f(void) { ROWS(ROW) }"),
    ("#define L(n, v) { .text = n, .type = v }\nstruct Q q[] = { L(0, 2), { 1, 2 }, L(2, 0) };", "#define L(n, v) { .text = n, .type = v }\nstruct Q q[] = { L(0, miopenHalf), { 1, miopenHalf }, L(2, miopenFloat) };"),
    ("#define ROW(n, v) [n] = {.type = v}\nstruct R r[] = {ROW(0, 2), ROW(2, 0)};", "#define ROW(n, v) [n] = {.type = v}\nstruct R r[] = {ROW(0, miopenHalf), ROW(2, miopenFloat)};"),
    ("#define CALL(f, ...) f(__VA_ARGS__)\nvoid f(void) { CALL(take, 2); CALL(use, 2); }", "#define CALL(f, ...) f(__VA_ARGS__)\nvoid f(void) { CALL(take, miopenHalf); CALL(use, 2); }"),
    ("#define SET(f, v) (r->f = v)\nvoid f(struct R *r) { SET(type, 2); SET(text, 2); }", "#define SET(f, v) (r->f = v)\nvoid f(struct R *r) { SET(type, miopenHalf); SET(text, 2); }"),
    ("#define EMPTY\n#define LATER(x) x EMPTY\n#define T(v) take(v)\n#define ALL(x) x\nvoid f(void) { ALL(LATER(T)(2)); }", "#define EMPTY\n#define LATER(x) x EMPTY\n#define T(v) take(v)\n#define ALL(x) x\nvoid f(void) { ALL(LATER(T)(miopenHalf)); }"),
    ("#define JOIN(a, b) a##b\nvoid f(void) { take(JOIN(, 2)); }", "#define JOIN(a, b) a##b\nvoid f(void) { take(JOIN(, miopenHalf)); }"),
    ("#define FIELDS(F) F(u) F(t)\n#define F(n) AS_##n\n#define AS_t cudnnDataType_t t;\n#define AS_u int u;\nstruct S { FIELDS(F) }; void f(struct S *s) { s->t = 2; s->u = 2; }",
     "#define FIELDS(F) F(u) F(t)\n#define F(n) AS_##n\n#define AS_t miopenDataType_t t;\n#define AS_u int u;\nstruct S { FIELDS(F) }; void f(struct S *s) { s->t = miopenHalf; s->u = 2; }"),
    ("void f(int n) { take(_Generic(n, int: 2, default: 0)); }", "void f(int n) { take(_Generic(n, int: miopenHalf, default: miopenFloat)); }"),
]  # fmt: skip
# (source, what is left to a person)
LEFT_IN_MACROS = [
    ("%:define X(v) take(v)\nvoid f(void) { X(2); }", "this directive is not read: write #"),
    ("??=define X(v) take(v)\nvoid f(void) { X(2); }", "this directive is not read: write #"),
    ("#define JOIN(a, b) a##b\nvoid f(void) { take(JOIN(0, 2)); }", "02 is a number"),
    ("#define BOTH(v) take(v), use(v)\nvoid f(void) { BOTH(2); }", "the number 2 is a number of cudnnDataType_t, and also something else"),
    ("#if A\n#define P(x) use(x)\n#else\n#define P(x) take(x)\n#endif\nvoid f(void) { P(2); }", "the number 2 is a number of cudnnDataType_t, and also something else"),
    ("#define X(v) take(v);\nvoid f(void) {\n#include \"none.def\"\n}", '"none.def" is not found here'),
    ("#ifdef A\n#define SINK use\n#else\n#define SINK take\n#endif\n#ifdef B\n#define GO(n) SINK(n)\n#else\n#define GO(n)\n#endif\nvoid f(void) { GO(2); }", "the number 2 is a number of cudnnDataType_t, and also something else"),
    ("".join(f"#{'el' if n else ''}if N == {n}\n#define P(x) {'use' if n < 19 else 'take'}(x + {n})\n" for n in range(20)) + "#endif\nvoid f(void) { P(2); }", "P has 20 definitions"),
    ("#if N == 0\n#define P(x) use(x)\n" + "".join(f"#elif N == {n}\n#define P(x) use{n}(x)\n" for n in range(5)) + "#else\n#define P(x) take(x)\n#endif\nvoid f(void) { P(2); }", "the number 2 is a number of cudnnDataType_t, and also something else"),
    ("#define D(x) x x\n#define E(x) D(D(D(D(D(D(x))))))\n#define F(x) E(E(E(E(x))))\nvoid f(void) { use(F(2)); }", "its macros expand to too much text"),
]  # fmt: skip
MACROS = "struct R { cudnnDataType_t type; const char *text; }; struct Q { const char *text; cudnnDataType_t type; }; void take(cudnnDataType_t t); void use(int n, ...);\n"


@pytest.mark.parametrize("source, wanted", THROUGH_MACROS)
def test_numbers_that_macros_carry_to_an_enumerator(source, wanted):
    file = ported(MACROS + source, "file.c")
    assert file.after.decode().partition("\n")[2] == wanted and not others(file)


@pytest.mark.parametrize("source, told", LEFT_IN_MACROS)
def test_numbers_that_macros_mix_or_hide_are_left(source, told):
    assert [each for each in others(ported(MACROS + source, "file.c")) if told in str(each)]


def test_rows_of_another_file_are_left_where_they_are_included(tmp_path, capsys):
    """Each inclusion has its own meaning of the rows, so that only its place can have the note."""
    for name, text in {
        "rows.def": "X(a, 2)\nX(b, 2)\n",
        "rows.inl": "X(a, 2)\n",
        "list.h": "#pragma once\n#include <cudnn.h>\n#define ROWS(X) X(a, 2)\nvoid take(cudnnDataType_t); void use(int);\n#define FIELD(t, n) t n;\nstruct S { FIELD(cudnnDataType_t, t) };\n",
        "a.c": '#include "list.h"\n#define X(n, v) take(v);\nvoid f(struct S *s) {\n#include "rows.def"\n#include "rows.inl"\nROWS(X)\ns->t = 2;\n#undef X\n'
        '#define X(n, v) use(v);\n#include "rows.def"\n#include "rows.inl"\nROWS(X)\n}\n',
    }.items():  # fmt: skip
        tmp_path.joinpath(name).write_text(text)
    assert command_line.main(["port", str(tmp_path), "--in-place"]) == 1
    assert "s->t = miopenHalf;" in tmp_path.joinpath("a.c").read_text()
    said = [line.split("/")[-1] for line in capsys.readouterr().err.splitlines() if "a.c" in line]
    assert [line.split(" is")[0] for line in said] == [f"a.c:{n}:1: integer: 2" for n in (4, 5, 6)]


@pytest.mark.parametrize("first", ["0", "CUDNN_DATA_FLOAT"])
@pytest.mark.parametrize("path", ["file.c", "file.cu"])
def test_a_range_of_labels_is_left_to_a_person(path, first):
    file = ported(C.format(f"switch (t) {{ case {first} ... 2: take(t); }}"), path)
    assert [note.kind for note in others(file)] == ["integer"]


@pytest.mark.parametrize("scope", ["Layer", "net::Layer", "Layer<T>", "Derived"])
def test_a_method_outside_of_its_class_knows_the_members(scope):
    """Most classes of C++ are declared in a header, and their methods defined elsewhere."""
    text = "template <class T> class Layer { cudnnDataType_t type_; void run(); }; class Derived : Layer<int> { int n_; void run(); };\n"
    method = "void {}::run() {{ switch (type_) {{ case {}: if (type_ == {}) g(static_cast<decltype(type_)>({})); }} }}"
    assert method.format(scope, *["miopenHalf"] * 3) in ported(text + method.format(scope, 2, 2, 2)).after.decode()


@pytest.mark.parametrize("source, wanted", IN_C)
def test_numbers_of_variables_fields_and_labels(source, wanted):
    file = ported(C.format(source), "file.c")
    text = file.after.decode()
    assert f"\n{wanted}; }}\n" in text and "{ return miopenHalf; }" in text
    assert not others(file)


@pytest.mark.parametrize(
    "source, told",
    [
        ("cudnnDataType_t t = (cudnnDataType_t)n", "n is a number of cudnnDataType_t"),
        ("x = static_cast<cudnnDataType_t>(s->anything)", "s->anything is a number"),
        ("x = AS(cudnnDataType_t, n)", "n is a number of cudnnDataType_t"),
        ("cudnnSetActivationDescriptor(a, n, CUDNN_PROPAGATE_NAN, 0)", "n is a number of cudnnActivationMode_t"),
        ("cudnnSetActivationDescriptor(a, 1 + 1, CUDNN_PROPAGATE_NAN, 0)", "1 + 1 is a number of cudnnActivationMode_t"),
        ("cudnnSetActivationDescriptor(a, MODE, CUDNN_PROPAGATE_NAN, 0)", "MODE is a number of cudnnActivationMode_t"),
        ("enum { MINE = 1 }; cudnnSetActivationDescriptor(a, MINE, CUDNN_PROPAGATE_NAN, 0)", "MINE is a number of cudnnActivationMode_t"),
        ("struct A { using Kind = cudnnDataType_t; }; auto k = static_cast<A::Kind>(n)", "n is a number of cudnnDataType_t"),
        ("cudnnSetActivationDescriptor(a, MODE_OF(n), CUDNN_PROPAGATE_NAN, 0)", "MODE_OF(n) is a number of cudnnActivationMode_t"),
        ("cudnnSetActivationDescriptor(a, atoi(s), CUDNN_PROPAGATE_NAN, 0)", "atoi(s) is a number of cudnnActivationMode_t"),
        ("cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, TYPE(n), 1, 2, 3, 4)", "TYPE(n) is a number of cudnnDataType_t"),
        ("cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, LEAST(0, 1), 1, 2, 3, 4)", "LEAST(0, 1) is a number of cudnnDataType_t"),
        ("cudnnDataType_t all[] = { ALL }", "ALL is a number of cudnnDataType_t"),
        ("cudnnSetActivationDescriptor(a, 77, CUDNN_PROPAGATE_NAN, 0)", "the number 77 is not a cudnnActivationMode_t"),
        ("x = (cudnnStatus_t)8", "CUDNN_STATUS_EXECUTION_FAILED, which has no counterpart"),
        ("y = table[CUDNN_DATA_FLOAT]", "CUDNN_DATA_FLOAT stands for its number"),
        ("y = CUDNN_DATA_FLOAT + 1", "CUDNN_DATA_FLOAT stands for its number"),
        ("cudnnConvolutionMode_t m = b ? CUDNN_CROSS_CORRELATION : CUDNN_CONVOLUTION", "CUDNN_CONVOLUTION has no counterpart"),
    ],
)  # fmt: skip
def test_unknown_numbers_are_left_with_a_note(tmp_path, source, told):
    """The tool prints a note and exits with status 1."""
    text = "#define MODE 1\n#define MODE_OF(x) ((x) ? MODE : MODE + MODE)\n#define ALL 0, 2\n#define TYPE(h) ((h) ? CUDNN_DATA_HALF : 0)\n"
    text += "#define LEAST(a, b) ((a) < (b) ? (a) : (b))\n"
    text += in_function(source, "int n")
    assert any(told in str(left) for left in ported(text).left)
    path = tmp_path / "client.cu"
    path.write_text(text)
    assert command_line.main(["port", "--check", str(path)]) == 1


@pytest.mark.parametrize(
    "source",
    [
        "cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, b ? CUDNN_CROSS_CORRELATION : CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT)",
        "cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, 0, 0)",
        "cudnnSetTensor4dDescriptor(d, 1, 0, 1, 2, 3, 4)",
        "cudnnSetTensor4dDescriptor(d, (cudnnTensorFormat_t)1, CUDNN_DATA_FLOAT, 1, 2, 3, 4)",
    ],
)
def test_a_value_that_miopen_refuses_leaves_the_call_unchanged(source):
    """A call stays unchanged if a number, or one arm of a conditional, has a value that MIOpen refuses."""
    file = ported(in_function(source))
    assert file.after.decode() == in_function(source) and len(file.left) == 1


def test_numbers_of_a_call_that_is_left_stay():
    source = in_function("cudnnSetTensor4dDescriptor(d, 1, (cudnnDataType_t)0, 1, 2, 3, 4)")
    assert ported(source).after.decode() == source


def test_porting_twice_changes_nothing():
    once = ported(C.format("t = 2"), "file.c").after.decode()
    assert ported(once, "file.c").after.decode() == once


def test_every_enumerator_has_its_number():
    for kind, members in ENUMERATIONS.items():
        for member in members:
            assert integers.enumerator_of(kind, member.value) == member.name


@pytest.mark.parametrize(
    "source, wanted, left",
    [
        ("cudnn.cudnnSetActivationDescriptor(a, 1, cudnn.CUDNN_PROPAGATE_NAN, 0.0)", "(a, miopen.miopenActivationRELU, ", False),
        ("t = cudnn.cudnnDataType_t(2)", "t = miopen.miopenDataType_t(miopen.miopenHalf)", False),
        ("t = cudnn.cudnnDataType_t(n)", "t = miopen.miopenDataType_t(n)", True),
        ("cudnn.cudnnSetTensor4dDescriptor(d, 1 if b else 0, 0, 1, 2, 3, 4)", "(d, 1 if b else 0, 0,", True),
        ("cudnn.cudnnSetActivationDescriptor(a, 77, cudnn.CUDNN_PROPAGATE_NAN, 0.0)", "(a, 77, ", True),
    ],
)  # fmt: skip
def test_python_clients(source, wanted, left):
    file = port_python("client.py", f"from dualdnn.api import cudnn\n{source}\n".encode(), forms.table())
    assert wanted in file.after.decode() and bool(file.left) == left
