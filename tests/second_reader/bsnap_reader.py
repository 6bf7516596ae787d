"""A second reader of snapshot files (.bsnap), written from docs/spec alone, to test the specification.

`Snapshot` opens one file and checks everything that needs no decoding. Reading decodes the requested chunks and checks
their hashes; `verify` does so for all. It holds the whole file and its decoded chunks in memory and is slow: it is
for tests. It shares no code with bitsnap. One thread at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from second_reader import chunk_codecs, container_format
from second_reader.chunk_codecs import Chunk, Input
from second_reader.container_format import ChunkRow, hash64
from second_reader.container_json import (
    Content,
    Encoding,
    StreamInput,
    Tensor,
    parse_content,
    parse_encoding,
    streams_of,
)
from second_reader.reader_errors import BaseMissing, ReaderError, require

# Returns the base by id and hint (the name that its file had), or None. The first argument is the asking snapshot.
FindBase = Callable[["Snapshot", str, str], "Snapshot | None"]


def no_bases(_asking: Snapshot, _base_id: str, _name: str) -> None:
    return None


class Snapshot:
    def __init__(self, file: bytes, find_base: FindBase = no_bases, path: Path | None = None) -> None:
        self._file = file
        self._find_base = find_base
        self._bases: dict[int, Snapshot] = {}
        self._decoded: dict[int, tuple[bytes, int]] = {}  # with the number of inputs in a row behind it
        self.path = path
        self.asked_by: Snapshot | None = None

        container_format.check_header(file)
        footer = container_format.read_footer(file)
        sections = container_format.read_sections(file, footer)
        self.snapshot_id = footer.snapshot_id
        self.content: Content = parse_content(sections[container_format.CONTENT])
        self.streams, self._stream_of_tensor = streams_of(self.content)
        self.encoding: Encoding = parse_encoding(sections[container_format.ENCODING], self.streams)
        self.parameter_sets = self._cut_parameters(sections.get(container_format.PARAMETERS, b""))
        self.safetensors_header = sections.get(container_format.SAFETENSORS)
        chunk_count = sum(stream.chunk_count for stream in self.streams)
        self.rows = container_format.parse_chunk_table(sections[container_format.CHUNKS], chunk_count)
        container_format.check_payload_places(self.rows, footer.index_offset)
        for number in range(len(self.streams)):
            self._check_rows(number)
        hashes = [row.decoded_hash for row in self.rows]
        expected = container_format.snapshot_id(
            sections[container_format.CONTENT], self.safetensors_header or b"", hashes
        )
        require(footer.snapshot_id == expected, f"snapshot id {footer.snapshot_id}, expected {expected}")

    @property
    def tensors(self) -> list[Tensor]:
        return self.content.tensors

    @property
    def metadata(self) -> dict[str, str]:
        return self.content.metadata

    @property
    def tree(self) -> Any:
        return self.content.tree

    def codec_names(self) -> set[str]:
        names = {number: name for name, number in chunk_codecs.CODEC_IDS.items()}
        return {names.get(row.codec, str(row.codec)) for row in self.rows}

    def read_tensor(self, number: int) -> bytes:
        tensor = self.tensors[number]
        if tensor.alias is not None:
            return self.read_tensor(tensor.alias)
        if tensor.pool is not None:
            return self._elements(len(self.streams) - 1, tensor.pool, tensor.size)[0]
        if tensor.size == 0:
            return b""
        stream = self._stream_of_tensor[number]
        return self._elements(stream, 0, self.streams[stream].elements)[0]

    def read_state(self) -> dict[str, bytes]:
        return {tensor.name: self.read_tensor(number) for number, tensor in enumerate(self.tensors)}

    def safetensors_file(self) -> bytes:
        header = self.safetensors_header
        if header is None:
            raise ValueError("not made from a safetensors file")
        data = [self.read_tensor(number) for number in range(len(self.tensors))]
        return b"".join([len(header).to_bytes(8, "little"), header, *data])

    def verify(self) -> None:
        """Full verification: every payload and every decoded chunk has its hash."""
        for stream in range(len(self.streams)):
            for chunk in range(self.streams[stream].chunk_count):
                self._chunk(stream, chunk)

    def _cut_parameters(self, section: bytes) -> list[bytes]:
        sizes = self.encoding.parameter_sizes
        require(sum(sizes) == len(section), f"parameter sets of {sum(sizes)} bytes, the section has {len(section)}")
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        return [section[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def _check_rows(self, number: int) -> None:
        """Checks the rules for the rows of one stream's chunks, as far as that needs no base."""
        stream, encoding = self.streams[number], self.encoding.streams[number]
        for chunk in range(stream.chunk_count):
            where = f"stream {number}, chunk {chunk}"
            row = self.rows[stream.first_chunk + chunk]
            first, elements = stream.chunk_elements(chunk)
            require(row.size <= elements * stream.width, f"{where}: payload of {row.size} bytes, longer than the chunk")
            none = row.parameters == container_format.NO_PARAMETERS
            require(none or row.parameters < len(encoding.parameters), f"{where}: parameters {row.parameters}")
            require(all(index < len(encoding.inputs) for index in row.inputs), f"{where}: inputs {row.inputs}")
            depths = [0]
            of_base = False
            for index in row.inputs:
                item = encoding.inputs[index]
                if item.base is None:
                    peer = self.streams[item.stream]
                    begin, end = item.element + first, item.element + first + elements
                    require(end <= peer.elements, f"{where}: input of elements {begin} to {end} of {peer.elements}")
                    touched = range(begin // chunk_codecs.MAX_ELEMENTS, -(-end // chunk_codecs.MAX_ELEMENTS))
                    depths += [self.rows[peer.first_chunk + chunk].depth for chunk in touched]
                else:
                    of_base = True
            require(row.depth <= container_format.MAX_DEPTH, f"{where}: depth {row.depth}")
            least = max(*depths, 1) if of_base else max(depths)
            right = row.depth >= least if of_base else row.depth == least
            require(right, f"{where}: depth {row.depth}, expected {'at least ' if of_base else ''}{least}")

    def _base(self, number: int) -> Snapshot:
        if number not in self._bases:
            base_id, name = self.encoding.bases[number]
            base = self._find_base(self, base_id, name)
            if base is None:
                raise BaseMissing(f"base {base_id} ({name})")
            require(base.snapshot_id == base_id, f"base {base_id}: a file of id {base.snapshot_id} was given")
            base.asked_by = self
            self._bases[number] = base
        return self._bases[number]

    def _elements(self, stream_number: int, first: int, elements: int) -> tuple[bytes, int]:
        stream = self.streams[stream_number]
        begin, end = first // chunk_codecs.MAX_ELEMENTS, -(-(first + elements) // chunk_codecs.MAX_ELEMENTS)
        chunks = [self._chunk(stream_number, chunk) for chunk in range(begin, end)]
        data = b"".join(data for data, _ in chunks)
        start = (first - begin * chunk_codecs.MAX_ELEMENTS) * stream.width
        return data[start : start + elements * stream.width], max(steps for _, steps in chunks)

    def _chunk(self, stream_number: int, chunk: int) -> tuple[bytes, int]:
        """The decoded chunk and its depth."""
        stream = self.streams[stream_number]
        number = stream.first_chunk + chunk
        if number in self._decoded:
            return self._decoded[number]
        where = f"stream {stream_number}, chunk {chunk}"
        row = self.rows[number]
        payload = self._file[row.offset : row.offset + row.size]
        require(hash64(payload) == row.stored_hash, f"{where}: wrong hash of the payload")
        first, elements = stream.chunk_elements(chunk)
        encoding = self.encoding.streams[stream_number]
        followed = [self._input(encoding.inputs[index], first, elements, where) for index in row.inputs]
        inputs = tuple(item for item, _ in followed)
        steps = max((1 + steps for _, steps in followed), default=0)
        require(steps <= container_format.MAX_STEPS, f"{where}: needs {steps} inputs in a row")
        parameters = self._parameters(row, encoding.parameters)
        try:
            data = chunk_codecs.decode(row.codec, Chunk(payload, stream.dtype, elements, inputs), parameters)
        except ReaderError as error:
            raise type(error)(f"{where}: {error}") from error
        require(hash64(data) == row.decoded_hash, f"{where}: wrong hash of the decoded chunk")
        self._decoded[number] = (data, steps)
        return data, steps

    def _input(self, item: StreamInput, first: int, elements: int, where: str) -> tuple[Input, int]:
        snapshot = self if item.base is None else self._base(item.base)
        require(item.stream < len(snapshot.streams), f"{where}: input stream {item.stream}")
        stream = snapshot.streams[item.stream]
        end = item.element + first + elements
        require(end <= stream.elements, f"{where}: input up to element {end} of {stream.elements}")
        data, steps = snapshot._elements(item.stream, item.element + first, elements)
        return Input(item.base is not None, stream.dtype, data), steps

    def _parameters(self, row: ChunkRow, sets: list[int]) -> bytes:
        return b"" if row.parameters == container_format.NO_PARAMETERS else self.parameter_sets[sets[row.parameters]]


def open_file(path: Path, find_base: FindBase | None = None) -> Snapshot:
    """The snapshot at `path`; without `find_base`, its bases are searched for in its own folder."""
    return Snapshot(path.read_bytes(), find_base or search_folder(path.parent), path)


def search_folder(folder: Path) -> FindBase:
    """Finds bases by id among the files of the folder: first the one with the hinted name, then the one with the least
    depth, and never one that directly or indirectly asks for it."""

    def find(asking: Snapshot, base_id: str, name: str) -> Snapshot | None:
        asked: set[Path | None] = set()
        above: Snapshot | None = asking
        while above is not None:
            asked.add(above.path)
            above = above.asked_by
        found = [Snapshot(path.read_bytes(), find, path) for path in of_id(base_id) if path not in asked]
        depths = {base.path: max((row.depth for row in base.rows), default=0) for base in found}
        return min(found, key=lambda base: (base.path != folder / name, depths[base.path], base.path), default=None)

    def of_id(base_id: str) -> list[Path]:
        paths = []
        for path in folder.glob("*.bsnap"):
            with contextlib.suppress(ReaderError):
                if container_format.read_footer(path.read_bytes()).snapshot_id == base_id:
                    paths.append(path)
        return paths

    return find
