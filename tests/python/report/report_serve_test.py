"""The page that is served: it shows what a training saves meanwhile, answers nobody else, and ends cleanly."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import bitsnap
from bitsnap.report.report_live import LiveRun, _Kept
from cli.command_line import IO, NOT_FOUND, USAGE, executable, run, run_json
from python.report.report_pages import Page, make_run
from python.report.report_servers import PATIENCE, Server, notices_of, steps_of

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PATHS = ["/", "/update?version=", "/tensors?step=20&role=weights&row=layer+3"]


def mapped_steps(page: Page) -> list[str]:
    """The steps of the map of layers."""
    layers = page.document["figures"].get("layers")
    return list(layers["variants"]["0,0"]["data"][0]["x"]) if layers else []


@pytest.fixture(scope="module")
def served(some_run: Path) -> Iterator[Server]:
    """A server of a run that does not change, all of whose figures are there."""
    with Server(some_run) as server:
        server.update_until(lambda page: mapped_steps(page) == ["20", "30"])
        yield server


# ---- a run that changes


def test_new_checkpoints_appear_and_a_run_that_goes_away_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Server(path) as server:
        first = server.get().page
        assert steps_of(first) == []
        server.update_until(lambda page: "There is no such run yet" in notices_of(page))
        for steps in ([1], [1, 2], [1, 2, 3]):
            make_run(path, steps[-1:])
            page = server.update_until(lambda page, steps=steps: steps_of(page) == [str(step) for step in steps])  # type: ignore[misc]
            assert "cannot be read" not in notices_of(page)
        page = server.update_until(lambda page: "distances" in page.document["figures"])
        assert server.get(f"/update?version={page.document['version']}").status == 204
        run("prune", path, "--keep-last", 1)
        server.update_until(lambda page: steps_of(page) == ["3"])
        shutil.rmtree(path)
        gone = server.update_until(lambda page: "cannot be read" in notices_of(page))
        assert steps_of(gone) == ["3"]
        make_run(path, [7])
        server.update_until(lambda page: steps_of(page) == ["7"] and "cannot be read" not in notices_of(page))


def test_an_empty_run_waits_for_its_first_checkpoint(tmp_path: Path) -> None:
    bitsnap.Store(tmp_path / "run").close()
    with Server(tmp_path / "run") as server:
        server.update_until(lambda page: "has no checkpoint yet" in notices_of(page))


def test_a_run_that_is_written_and_pruned_all_the_time_is_shown(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", [1])
    ended = threading.Event()

    def write() -> None:
        step = 1
        with bitsnap.Store(path, keep_last=2) as store:
            while not ended.is_set():
                step += 1
                store.save(step, {"w": bytes(range(200)) * (step % 7 + 1), "step": step})
                time.sleep(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Server(path) as server:
            seen: set[str] = set()
            until = time.monotonic() + 120
            while len(seen) <= 3:
                assert time.monotonic() < until
                for where in PATHS:
                    assert server.get(where).status in {200, 204, 404, 503}
                seen.update(steps_of(server.get("/update?version=").page))
            ended.set()
            writer.join()
            (newest,) = run_json("log", path)[-1:]
            server.update_until(lambda page: steps_of(page)[-1:] == [str(newest["step"])])
    finally:
        ended.set()
        writer.join()


def test_only_what_is_new_is_read_again(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", [1, 2])
    log = tmp_path / "calls"
    program = tmp_path / "bitsnap"
    program.write_text(f'#!/bin/sh\necho "$1 $(eval echo \\${{$#}})" >> {log}\nexec {executable()} "$@"\n')
    program.chmod(0o755)
    with Server(path, "--steps", 2, command=program) as server:
        server.update_until(lambda page: page.document["figures"].get("distances") is not None)
        make_run(path, [3])
        server.update_until(lambda page: "step 3" in " ".join(page.texts["figcaption"]))
    calls = log.read_text().splitlines()
    assert [calls.count(f"inspect {path}@{step}") for step in (1, 2, 3)] == [1, 1, 1]
    assert [calls.count(f"analyze {path}@{step}") for step in (2, 3)] == [1, 1]


def test_timings_of_the_run_itself_are_shown_as_they_come(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", [1, 2])
    with Server(path, "--steps", 1) as server:
        server.update_until(lambda page: bool(page.document["figures"]))
        (path / "timings.jsonl").write_text('{"step": 1, "stall_seconds": 0.5}\n')
        server.update_until(lambda page: "timings" in page.document["figures"])
        with (path / "timings.jsonl").open("a") as file:
            file.write('{"step": 2')
            file.flush()
            server.update_until(lambda page: "timings.jsonl, line 2" in notices_of(page))
            file.write(', "stall_seconds": 0.25}\n')
        page = server.update_until(
            lambda page: page.document["figures"]["timings"]["variants"][""]["data"][0]["x"] == ["1", "2"]
        )
        assert "line 2" not in notices_of(page)


def test_a_second_run_is_shown_as_it_grows(tmp_path: Path, some_run: Path) -> None:
    second = tmp_path / "second"
    with Server(some_run, "--against", second, "--steps", 1) as server:
        server.update_until(lambda page: steps_of(page) == ["10", "20", "30"])
        for step in (20, 30):
            make_run(second, [step])
            page = server.update_until(lambda page, step=step: f"stored at step {step}" in page.texts.get("td", []))  # type: ignore[misc]
            assert second_steps(page) == [str(each) for each in range(20, step + 1, 10)]


def second_steps(page: Page) -> list[str]:
    line = page.document["figures"]["bytes"]["variants"]["0"]["data"][-1]
    assert line["name"] == "second"
    return list(line["x"])


# ---- tensors of a cell


def test_the_tensors_of_a_cell_are_those_of_analyze(served: Server, some_run: Path) -> None:
    where = "/tensors?" + urlencode({"step": 20, "role": "masters", "row": "layer 3"})
    answer = served.get(where)
    assert answer.status == 200
    assert served.get(where).text == answer.text
    (state,) = run_json("analyze", f"{some_run}@20", "--tensor", "master.layers.3.w")["states"]
    (tensor,) = state["tensors"]
    assert answer.json["left_out"] == 0
    (found,) = answer.json["tensors"].values()
    assert found["planes"] == tensor["entropy"]["planes"]
    assert found["xor_planes"] == tensor["entropy"]["xor_planes"]
    assert found["changed"] == tensor["change"]["changed"]
    for unknown in (
        {"step": 21},
        {"role": "weight"},
        {"row": "layer 4"},
        {"step": "x"},
        {"step": "٢"},
        {"step": "9" * 30},
    ):
        values = {"step": 20, "role": "masters", "row": "layer 3", **unknown}
        assert served.get("/tensors?" + urlencode(values)).status == 404
    assert served.get("/tensors").status == 404


def test_what_is_kept_is_bounded() -> None:
    kept: _Kept[str] = _Kept(10, len)
    for key, value in (("a", "1234"), ("b", "1234"), ("a", "12345"), ("c", "1234")):
        kept.put(key, value)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("12345", None, "1234")
    kept.put("d", "12345")
    assert (kept.get("a"), kept.get("c"), kept.get("d")) == (None, "1234", "12345")
    kept.put("e", "x" * 11)
    assert kept.get("e") is None


# ---- who may ask


def test_only_this_machine_is_answered_under_its_own_name(served: Server) -> None:
    for where in PATHS:
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.example:80",
            "[::1]",
            "",
        ):
            assert served.get(where, Host=host).status == 400, (where, host)
        assert served.get(where, Host=f"localhost:{served.port}").status in {200, 404}
    # A server that listened on all addresses would be found under this one.
    with pytest.raises(ConnectionRefusedError):
        served.get(address="127.0.0.2")


def test_other_sites_in_the_browser_get_nothing(served: Server) -> None:
    for where in PATHS:
        answer = served.get(where, Origin="http://evil.example")
        assert not [name for name in answer.headers if name.startswith("access-control")]
        if answer.status == 200:
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
            assert answer.headers["x-content-type-options"] == "nosniff"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert served.get(where, method, Origin="http://evil.example").status == 405
    for where in PATHS[1:]:
        assert served.get(where, Sec_Fetch_Site="cross-site").status == 403
        assert served.get(where, Sec_Fetch_Site="same-origin").status != 403


def test_no_path_leads_to_a_file(served: Server) -> None:
    for where in ("/bitsnap.json", "/../bitsnap.json", "/%2e%2e/%2e%2e/etc/passwd", "/report.js", "//etc/passwd", "/."):
        answer = served.get(where)
        assert (answer.status, answer.text) == (404, "Not Found"), where


def test_the_policy_of_a_served_page_lets_it_ask_its_server_only(served: Server) -> None:
    page = served.get().page
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert len(rules["script-src"].split()) == 3
    assert len(page.texts["script"]) == 4


def test_hostile_names_are_text_in_a_served_page(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(2)>\x1b%{y}$<!--'\"&*.layers.3.w"
    path = make_run(tmp_path / "<b>run", [1, 2], hostile)
    with Server(path) as server:
        page = server.update_until(lambda page: "layers" in page.document["figures"])
        assert not [tag for tag, _ in page.tags if tag in {"img", "b", "i"}]
        (heat,) = page.document["figures"]["layers"]["variants"]["0,0"]["data"]
        answer = server.get("/tensors?" + urlencode({"step": heat["x"][-1], "role": "weights", "row": heat["y"][0]}))
        assert list(answer.json["tensors"]) == [bitsnap.errors.printable(f"model.{hostile}")]


# ---- beginning and end


def test_ctrl_c_ends_it_without_a_word_though_connections_are_open(some_run: Path) -> None:
    server = Server(some_run)
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(12) == b"HTTP/1.1 200"
        began = time.monotonic()
        assert server.end() == (0, "")
        assert time.monotonic() - began < 4
    assert Server(some_run).end(signal.SIGTERM) == (128 + signal.SIGTERM, "")


def test_idle_connections_take_no_place_of_others(some_run: Path) -> None:
    """Some never send anything, some begin a request, and some are kept after an answer."""
    request = b"GET /update?version= HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Server(some_run) as server, contextlib.ExitStack() as opened:
        for number in range(150):
            idle = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            idle.sendall([b"", request[:20], request][number % 3])
            if number % 30 == 29:
                assert server.get().status == 200
        # The newest ones are left alone.
        idle.sendall(request)
        answers = idle.recv(1 << 16)
        assert answers.startswith(b"HTTP/1.1 200")


def test_ctrl_c_ends_what_it_started(tmp_path: Path) -> None:
    """The command that studies the run never ends by itself."""
    path = make_run(tmp_path / "run", [1])
    program = tmp_path / "bitsnap"
    mark = tmp_path / "studying"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = analyze ]; then echo $$ > {mark}; exec sleep 1000; fi\nexec {executable()} "$@"\n'
    )
    program.chmod(0o755)
    with Server(path, command=program) as server:
        until = time.monotonic() + PATIENCE
        while not (mark.exists() and mark.read_text().endswith("\n")):
            assert server.get("/update?version=").status == 200
            assert time.monotonic() < until
            time.sleep(0.05)
        assert server.end() == (0, "")
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


def test_a_port_can_be_named_and_one_that_is_taken_is_an_error(some_run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("report", some_run, "--serve", "--port", port, status=IO)
        assert f"port {port}".encode() in done.stderr
    with Server(some_run, "--port", port) as server:
        assert server.port == port


def test_options_that_do_not_go_together_are_refused(some_run: Path) -> None:
    assert b"--port belongs to --serve" in run("report", some_run, "--port", 80, status=USAGE).stderr
    assert b"leave out -o" in run("report", some_run, "--serve", "-o", "x.html", status=USAGE).stderr
    assert b"65535" in run("report", some_run, "--serve", "--port", 65536, status=USAGE).stderr


def test_missing_packages_of_the_server_are_named_with_how_to_get_them(some_run: Path) -> None:
    script = (
        "import sys; sys.modules[sys.argv[1]] = None; from bitsnap.report.report_command import main;"
        "sys.exit(main(sys.argv[2:]))"
    )
    for module in ("starlette", "uvicorn"):
        arguments = [sys.executable, "-c", script, module, str(some_run), "--serve"]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == NOT_FOUND, done
        assert f"the package {module}, which is not installed: pip install 'bitsnap[serve]'" in done.stderr


def test_nothing_is_studied_that_nobody_looks_at(tmp_path: Path) -> None:
    live = LiveRun(make_run(tmp_path / "run", [1, 2]), steps=2)
    threads = [threading.Thread(target=work) for work in (live.watch, live.study)]
    for thread in threads:
        thread.start()
    try:
        until = time.monotonic() + PATIENCE
        while not live._found.data.checkpoints:
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(1.5)
        assert not live._found.data.states
        while not live.found().data.states:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        live.stop()
        for thread in threads:
            thread.join()
