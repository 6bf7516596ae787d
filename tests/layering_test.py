"""Checks this tree by layering.py, and that each of its checks can fail: one small tree for each violation."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import function_lengths
import layering

MOST = layering.MAX_LINES
LONGEST = layering.MAX_FUNCTION_LINES

VALID = {
    "include/bitsnap/bitsnap.hpp": "#include <bitsnap/error.hpp>\n",
    "include/bitsnap/error.hpp": "#include <string>\n",
    "src/base/bytes.hpp": "#include <bitsnap/error.hpp>\n",
    "src/os/file_posix.cpp": '#include <unistd.h>\n#include "base/bytes.hpp"\n',
    "src/exec/executor_tbb.cpp": "#include <tbb/parallel_for.h>\n",
    "src/codec/encoder.hpp": '#include "base/bytes.hpp"\n',
    "src/codec/raw/raw_encode.cpp": '#include "codec/encoder.hpp"\n',
    "src/codec/raw/raw_test.cpp": '#include <filesystem>\n#include "codec/encoder.hpp"\n',
    "src/restore/reader.cpp": '#include "codec/decoder.hpp"\n',
    "src/codec/decoder.hpp": "",
    "src/save/save.cpp": '#include "codec/encoder.hpp"\n#include "restore/read.hpp"\n',
    "src/restore/read.hpp": "",
    "interop/safetensors/safetensors.cpp": '#include "save/save.hpp"\n',
    "cli/main.cpp": '#include <unistd.h>\n#include <bitsnap/error.hpp>\n#include "cli/options.hpp"\n',
    "cli/options.hpp": "",
    "cli/commands/log_command.cpp": '#include "cli/options.hpp"\n#include "cli/output/table.hpp"\n',
    "cli/output/table.hpp": '#include "cli/output/cells.hpp"\n',
    "cli/output/cells.hpp": "",
    "cli/watch/raw.hpp": "",
    "python/extension/module.cpp": '#include <bitsnap/error.hpp>\n#include "errors.hpp"\n',
    "python/extension/errors.hpp": "",
    "python/bitsnap/__init__.py": "from bitsnap.store import Store as Store\n",
    "python/bitsnap/errors.py": "from bitsnap import _bitsnap\n",
    "python/bitsnap/_tensors/arrays.py": "from bitsnap.errors import BitsnapError\n",
    "python/bitsnap/store.py": "from bitsnap._tensors import arrays\n",
    "tests/corruption_test.cpp": '#include "save/save.hpp"\n',
}


# A file, what stands there, and what the report says.
VIOLATIONS = {
    "a layer includes a higher one": ("src/base/up.cpp", '#include "codec/decoder.hpp"', "is below"),
    "spaces do not hide it": ("src/base/up.cpp", '  #  include  "codec/decoder.hpp"', "is below"),
    "a test does": ("src/base/up_test.cpp", '#include "codec/decoder.hpp"', "is below"),
    "interop is a layer": ("src/save/up.cpp", '#include "interop/x.hpp"', "is below"),
    "reading includes encoding": ("src/restore/up.cpp", '#include "codec/encoder.hpp"', "code that writes"),
    "a decoder includes an encoder": ("src/codec/x_decode.cpp", '#include "codec/x_encode.hpp"', "that writes"),
    "reading includes policy": ("src/restore/up.cpp", '#include "plan/planner.hpp"', "is below"),
    "a testing header in the library": ("src/plan/p.cpp", '#include "codec/kit_testing.hpp"', "testing header"),
    "a header without its layer": ("src/base/near.cpp", '#include "bytes.hpp"', "layer/header.hpp"),
    "brackets around an inner header": ("src/os/b.cpp", "#include <base/bytes.hpp>", "with quotes"),
    "a public header that is not there": ("src/os/b.cpp", "#include <bitsnap/gone.hpp>", "no such public"),
    "a public header includes an inner one": (
        "include/bitsnap/error.hpp",
        '#include "base/bytes.hpp"',
        "public",
    ),
    "bitsnap.hpp leaves a header out": ("include/bitsnap/more.hpp", "", "does not include it"),
    "the command includes an inner one": ("cli/x.cpp", '#include "base/bytes.hpp"', "public headers only"),
    "a room of the command includes a higher one": (
        "cli/output/up.cpp",
        '#include "cli/watch/raw.hpp"',
        "cli/output is below cli/watch",
    ),
    "the ground of the command includes a room": (
        "cli/up.cpp",
        '#include "cli/output/table.hpp"',
        "cli is below cli/output",
    ),
    "a short name hides the room": ("cli/up.cpp", '#include "output/table.hpp"', "cli/room/header.hpp"),
    "a header of the command that is gone": ("cli/up.cpp", '#include "cli/gone.hpp"', "that is there"),
    "a folder of the command that is no room": ("cli/tables/up.cpp", "", "no room tables"),
    "the extension includes an inner one": ("python/x.cpp", '#include "base/bytes.hpp"', "public headers only"),
    "the system called elsewhere": ("src/plan/p.cpp", "#include <sys/mman.h>", "only src/os"),
    "oneTBB used elsewhere": ("src/plan/p.cpp", "#include <tbb/parallel_for.h>", "only src/exec"),
    "printing": ("src/plan/p.cpp", "#include <iostream>", "never prints"),
    "a kernel includes the standard library": (
        "src/base/x_avx2.cpp",
        "#include <array>",
        "no standard library",
    ),
    "a kernel for all levels does": ("src/base/x_levels.cpp", "#include <bit>", "no standard library"),
    "a kernel includes a public header": (
        "src/base/x_scalar.cpp",
        "#include <bitsnap/error.hpp>",
        "no standard",
    ),
    "a folder that is no layer": ("src/util/x.cpp", "", "there is no layer"),
    "a file name twice": ("src/os/bytes.hpp", "", "same name"),
    "a file too long": ("src/os/long.cpp", "\n" * MOST, f"{MOST + 1} lines"),
    "a Python file too long": ("python/bitsnap/state.py", "\n" * MOST, f"{MOST + 1} lines"),
    "a module imports a room above": (
        "python/bitsnap/_tensors/boxes.py",
        "def f():\n    from bitsnap.store import Store",
        "_tensors is below store",
    ),
    "a module imports the package": ("python/bitsnap/state.py", "import bitsnap", "only users"),
    "a module imports what is not there": ("python/bitsnap/state.py", "from bitsnap._gone import x", "no such"),
    "a module imports by half its name": ("python/bitsnap/state.py", "from . import errors", "whole names"),
    "modules import each other": (
        "python/bitsnap/_tensors/arrays.py",
        "from bitsnap._tensors import arrays, boxes",
        "a circle of imports",
    ),
    "a module that is no room": ("python/bitsnap/more.py", "", "there is no room more"),
    "a class name twice": ("python/bitsnap/state.py", "class A: ...\n\n\nclass A: ...", "a class A, too"),
    "a comment names a file that is gone": (
        "src/os/b.cpp",
        "// See os/gone" + ".cpp.",
        "which is not there",
    ),
    "a comment of Python does": ("python/bitsnap/state.py", "x = 1  # gone" + ".py", "which is not there"),
    "a function too long": ("src/os/long.cpp", "int f() {" + "\n" * LONGEST + "}", f"f has {LONGEST + 1}"),
    "a Python function too long": (
        "python/bitsnap/state.py",
        "def f():" + "\n" * LONGEST + " 1",
        f"has {LONGEST + 1}",
    ),
}


class Layering(unittest.TestCase):
    def violations_with(self, extra: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (VALID | extra).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return layering.violations(Path(folder))

    def test_accepts_a_valid_tree(self) -> None:
        self.assertEqual(self.violations_with({}), [])

    def test_reports_each_violation_once(self) -> None:
        boxes = {"python/bitsnap/_tensors/boxes.py": "from bitsnap._tensors import arrays\n"}
        for case, (name, text, expected) in VIOLATIONS.items():
            with self.subTest(case):
                others = boxes if expected == "a circle of imports" else {}
                found = self.violations_with(others | {name: text + "\n"})
                self.assertEqual(len(found), 1, found)
                self.assertIn(expected, found[0])
                self.assertIn(name, found[0])

    def test_headers_of_kernels_include_no_standard_library(self) -> None:
        tree = {
            "src/base/x_avx512.cpp": '#include <immintrin.h>\n#include "base/x_kernel.hpp"\n',
            "src/base/x_kernel.hpp": '#include <cstdint>\n#include "base/x_arithmetic.hpp"\n',
            "src/base/x_arithmetic.hpp": "#include <cstddef>\n",
        }
        self.assertEqual(self.violations_with(tree), [])
        found = self.violations_with(tree | {"src/base/x_arithmetic.hpp": "#include <algorithm>\n"})
        self.assertEqual(len(found), 1, found)
        self.assertIn("src/base/x_arithmetic.hpp:1", found[0])

    def test_accepts_this_tree(self) -> None:
        root = Path(__file__).parent.parent
        self.assertGreater(len(list(layering.sources(root))), 0)
        self.assertEqual(layering.violations(root), [])

    def test_accepts_the_longest_file_and_function(self) -> None:
        body = "int f() {" + "\n" * (LONGEST - 1) + "}\n"
        self.assertEqual(self.violations_with({"src/os/long.cpp": body + "\n" * (MOST - LONGEST)}), [])

    def test_has_the_layers_of_the_build_in_order(self) -> None:
        root = Path(__file__).parent.parent
        lists = [root / "src/CMakeLists.txt", root / "CMakeLists.txt"]
        lines = [line for path in lists for line in path.read_text().splitlines()]
        built = [line.removeprefix("bitsnap_layer(").split()[0] for line in lines if line.startswith("bitsnap_layer(")]
        self.assertGreater(len(built), 5)
        self.assertEqual(built, [layer for layer in layering.LAYERS if layer in built])

    def test_finds_functions_in_cpp(self) -> None:
        text = """// int f() {
#define BRACE {
namespace a {
struct S : B<int> {
  S() : x_{1},
        y_(\'{\') {}
  int x_ = 1\'000;
  bool operator==(const S&) const { return "}{"[0] == \'}\'; }
};
constexpr int kTable[] = {f(1),
                          f(2)};
template <typename T>
enum class E g(T t) {
  auto h = [&](int i) {
    return i;
  };
}
}
TEST(Suite, Name) {
  g({});
}
"""
        found = [(function.name, function.line, function.lines) for function in function_lengths.cpp_functions(text)]
        self.assertEqual(found[-2:], [("g", 12, 6), ("TEST", 19, 3)], found)
        self.assertNotIn("f", [name for name, _, _ in found])


if __name__ == "__main__":
    unittest.main()
