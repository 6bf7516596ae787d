"""Writes the archives in interop/zip/fixtures with zipfile, the command zip and torch: python write_zip_fixtures.py

All but broken ones hold the same contents: "numbers" (the bytes 0 to 255), "empty", and "text" (20 times "bitsnap ").
"""

from __future__ import annotations

import io
import subprocess
import tempfile
import zipfile
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "fixtures"
CONTENTS = {"numbers": bytes(range(256)), "empty": b"", "text": b"bitsnap " * 20}


class Unseekable(io.RawIOBase):
    """A stream that zipfile can only append to, so that it writes data descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:  # type: ignore[no-untyped-def]
        self.written += data
        return len(data)


def add_all(archive: zipfile.ZipFile, method: int = zipfile.ZIP_STORED, force_zip64: bool = False) -> None:
    for name, data in CONTENTS.items():
        info = zipfile.ZipInfo(name)
        info.compress_type = method
        with archive.open(info, "w", force_zip64=force_zip64) as entry:
            entry.write(data)


def write_with_zipfile() -> None:
    with zipfile.ZipFile(FOLDER / "stored.zip", "w") as archive:
        add_all(archive)
    with zipfile.ZipFile(FOLDER / "deflated.zip", "w") as archive:
        add_all(archive, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(FOLDER / "zip64.zip", "w") as archive:
        add_all(archive, force_zip64=True)
    with zipfile.ZipFile(FOLDER / "comment.zip", "w") as archive:
        add_all(archive)
        archive.comment = b"a comment with PK\5\6 in it"
    for name, force_zip64 in {"descriptors.zip": False, "descriptors64.zip": True}.items():
        stream = Unseekable()
        with zipfile.ZipFile(stream, "w") as archive:
            add_all(archive, force_zip64=force_zip64)
        (FOLDER / name).write_bytes(stream.written)
    with zipfile.ZipFile(FOLDER / "none.zip", "w"):
        pass


class Sparse(io.RawIOBase):
    """A file in which blocks of zeros become holes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open("wb+")

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def write(self, data) -> int:  # type: ignore[no-untyped-def]
        if len(data) > 4096 and not any(memoryview(data)[:: len(data) // 16]):
            self.file.seek(len(data), io.SEEK_CUR)
            return len(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def write_huge() -> None:
    """Writes the ends of an archive with 5 GiB of zeros between them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "huge.zip"
        stream = Sparse(path)
        with zipfile.ZipFile(stream, "w") as archive:
            with archive.open(zipfile.ZipInfo("zeros"), "w", force_zip64=True) as entry:
                for _ in range(80):
                    entry.write(bytes(1 << 26))
            archive.writestr(zipfile.ZipInfo("after"), b"behind 4 GiB")
        stream.file.seek(0)
        (FOLDER / "huge_start.bin").write_bytes(stream.file.read(64))
        stream.file.seek(80 * (1 << 26))
        (FOLDER / "huge_end.bin").write_bytes(stream.file.read())
        stream.file.close()


def write_with_zip() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in CONTENTS.items():
            (Path(folder) / name).write_bytes(data)

        def run(*arguments: str, output: Path | None = None) -> None:
            command = ["zip", "-q", *arguments, *CONTENTS]
            subprocess.run(command, cwd=folder, check=True, stdout=output.open("wb") if output else None)

        for name in ["info_zip.zip", "encrypted.zip", "info_zip_descriptors.zip"]:
            (FOLDER / name).unlink(missing_ok=True)
        run("-0", str(FOLDER / "info_zip.zip"))
        run("-0", "-P", "secret", str(FOLDER / "encrypted.zip"))
        run("-0", "-fd", str(FOLDER / "info_zip_descriptors.zip"))
        run("-0", "-", output=FOLDER / "info_zip_piped.zip")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    write_with_zipfile()
    write_with_zip()
    write_huge()
    torch.save({"weight": torch.arange(12, dtype=torch.float32), "empty": torch.zeros(0)}, FOLDER / "torch.zip")


if __name__ == "__main__":
    main()
