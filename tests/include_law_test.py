"""Holds the include law over this tree, and shows that it can fail: one small tree for each breach."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import include_law

LAWFUL = {
    "include/bitsnap/error.hpp": "#include <string>\n",
    "src/base/bytes.hpp": "#include <bitsnap/error.hpp>\n",
    "src/os/file_posix.cpp": '#include <unistd.h>\n#include "base/bytes.hpp"\n',
    "src/exec/executor_tbb.cpp": "#include <tbb/parallel_for.h>\n",
    "src/codec/encoder.hpp": '#include "base/bytes.hpp"\n',
    "src/codec/raw/raw_encode.cpp": '#include "codec/encoder.hpp"\n',
    "src/codec/raw/raw_test.cpp": '#include <filesystem>\n#include "codec/encoder.hpp"\n',
    "src/restore/reader.cpp": '#include "codec/decoder.hpp"\n',
    "src/codec/decoder.hpp": "",
    "src/record/save.cpp": '#include "codec/encoder.hpp"\n#include "restore/read.hpp"\n',
    "src/restore/read.hpp": "",
    "interop/safetensors.cpp": '#include "record/save.hpp"\n',
    "cli/main.cpp": '#include <unistd.h>\n#include <bitsnap/error.hpp>\n#include "cli/options.hpp"\n',
    "python/extension/module.cpp": '#include <bitsnap/error.hpp>\n#include "errors.hpp"\n',
    "python/extension/errors.hpp": "",
    "python/bitsnap/__init__.py": "",
    "tests/corruption_test.cpp": '#include "record/save.hpp"\n',
}


class IncludeLaw(unittest.TestCase):
    def breaches_with(self, extra: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (LAWFUL | extra).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return include_law.breaches(Path(folder))

    def test_a_lawful_tree_has_no_breach(self) -> None:
        self.assertEqual(self.breaches_with({}), [])

    def test_each_breach_is_found_once(self) -> None:
        cases = {
            "a floor includes a higher one": ("src/base/up.cpp", '#include "codec/decoder.hpp"', "lies below"),
            "spaces do not hide it": ("src/base/up.cpp", '  #  include  "codec/decoder.hpp"', "lies below"),
            "a test does": ("src/base/up_test.cpp", '#include "codec/decoder.hpp"', "lies below"),
            "interop is a floor": ("src/record/up.cpp", '#include "interop/x.hpp"', "lies below"),
            "reading includes encoding": ("src/restore/up.cpp", '#include "codec/encoder.hpp"', "what writes"),
            "a decoder includes an encoder": ("src/codec/x_decode.cpp", '#include "codec/x_encode.hpp"', "what writes"),
            "reading includes policy": ("src/restore/up.cpp", '#include "plan/planner.hpp"', "lies below"),
            "a testing header in the library": ("src/plan/p.cpp", '#include "codec/kit_testing.hpp"', "made for tests"),
            "a header without its floor": ("src/base/near.cpp", '#include "bytes.hpp"', "floor/header.hpp"),
            "brackets around an inner header": ("src/os/b.cpp", "#include <base/bytes.hpp>", "with quotes"),
            "a public header that is not there": ("src/os/b.cpp", "#include <bitsnap/gone.hpp>", "no such public"),
            "a public header includes an inner one": ("include/bitsnap/x.hpp", '#include "base/bytes.hpp"', "public"),
            "the command includes an inner one": ("cli/x.cpp", '#include "base/bytes.hpp"', "public headers only"),
            "the extension includes an inner one": ("python/x.cpp", '#include "base/bytes.hpp"', "public headers only"),
            "the system called elsewhere": ("src/plan/p.cpp", "#include <sys/mman.h>", "src/os only"),
            "oneTBB used elsewhere": ("src/plan/p.cpp", "#include <tbb/parallel_for.h>", "src/exec only"),
            "printing": ("src/plan/p.cpp", "#include <iostream>", "never prints"),
            "a folder that is no floor": ("src/util/x.cpp", "", "no floor is called"),
            "a file name twice": ("src/os/bytes.hpp", "", "same name"),
            "a file too long": ("src/os/long.cpp", "\n" * 600, "601 lines"),
            "a Python file too long": ("python/bitsnap/long.py", "\n" * 600, "601 lines"),
        }
        for case, (name, text, expected) in cases.items():
            with self.subTest(case):
                found = self.breaches_with({name: text + "\n"})
                self.assertEqual(len(found), 1, found)
                self.assertIn(expected, found[0])
                self.assertIn(name, found[0])

    def test_this_tree_is_lawful(self) -> None:
        root = Path(__file__).parent.parent
        self.assertGreater(len(list(include_law.sources(root))), 0)
        self.assertEqual(include_law.breaches(root), [])

    def test_longest_file_allowed(self) -> None:
        self.assertEqual(self.breaches_with({"src/os/long.cpp": "\n" * 600}), [])

    def test_floors_stand_in_the_order_of_the_build(self) -> None:
        root = Path(__file__).parent.parent
        lists = [root / "src/CMakeLists.txt", root / "CMakeLists.txt"]
        lines = [line for path in lists for line in path.read_text().splitlines()]
        built = [line.removeprefix("bitsnap_floor(").split()[0] for line in lines if line.startswith("bitsnap_floor(")]
        self.assertGreater(len(built), 5)
        self.assertEqual(built, [floor for floor in include_law.FLOORS if floor in built])


if __name__ == "__main__":
    unittest.main()
