"""``foliot analyse``: why a training job hung or was slow, from the files that it left. It needs no bus."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foliot.analysis import flight_recorder, operator_trace, what_if
from foliot.analysis.hang import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot.analysis.flight_recorder import Dumps
    from foliot.analysis.hang import Verdict
    from foliot.analysis.what_if import Slowdown

_WHY = {
    "absent": "has not begun it, and has nothing else to do",
    "behind": "is not through with it, but others are",
    "mismatch": "began something else than most",
    "dead": "says nothing, and what hangs waits for it alone",
}


class _NothingError(Exception):
    """There is nothing to judge; the message says why."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "analyse",
        help="say why a training job hung or was slow, from its files",
        description="Reads what a training job left: the dumps of PyTorch's Flight Recorder, a file a rank, or a trace "
        "of its operations. Of dumps it says which ranks held up the others; of a trace, what slow workers cost, and "
        "which these are. It needs neither a bus nor the other ranks' dumps; it says how sure it is.",
        epilog="Examples: foliot analyse /tmp/nccl_trace · foliot analyse trace.parquet --json",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a file, or a folder of dumps")
    parser.add_argument("--json", action="store_true", help="what it found, as one JSON object")
    parser.set_defaults(func=_analyse)


def _analyse(arguments: argparse.Namespace) -> int:
    try:
        found, lines = _judged(arguments.path)
    except (_NothingError, operator_trace.TraceError) as error:
        sys.stderr.write(f"foliot analyse: {arguments.path}: {error}\n")
        return 2
    for line in [msgspec.json.encode(found).decode()] if arguments.json else lines:
        print(line)
    return 0


def _judged(path: Path) -> tuple[dict[str, Any], Iterator[str]]:
    """What is found, and the same in lines.

    Raises:
        _NothingError, TraceError: nothing there can be judged.
    """
    files = _files(path)
    traces = [each for each in files if each.suffix in operator_trace.SUFFIXES]
    dumps = [each for each in files if flight_recorder.rank_of(each.name) is not None]
    if traces and dumps:
        raise _NothingError("it holds dumps and a trace: name the file")
    if len(traces) > 1:
        raise _NothingError(f"it holds {len(traces)} traces: name one")
    if traces:
        lost = what_if.analyse(operator_trace.read(traces[0]))
        return _of_trace(lost), _lines_of_trace(lost)
    if not dumps:
        raise _NothingError("it holds neither dumps, whose names end with a rank, nor a trace (.parquet, .csv)")
    said = flight_recorder.read(dumps)
    if not said.records:
        name, reason = said.broken[0]
        raise _NothingError(f"no dump can be read; {name}: {reason}")
    verdict = judge(said.records, said.expected)
    return _of_dumps(said, verdict), _lines_of_dumps(said, verdict)


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(each for each in path.iterdir() if each.is_file())
        if not path.exists():
            raise _NothingError("there is no such file")
    except OSError as error:
        raise _NothingError(error.strerror or "it cannot be read") from None
    return [path]


def _of_trace(found: Slowdown) -> dict[str, Any]:
    return {
        "kind": "trace",
        "steps": found.steps,
        "s": found.slowdown,
        "ms": found.of_last_stage,
        "mw": found.of_slowest,
        "slow": [{"dp_rank": each.replica, "stage": each.stage, "share": each.share} for each in found.slow],
    }


def _lines_of_trace(found: Slowdown) -> Iterator[str]:
    yield f"{found.steps} steps, {found.slowdown:.3f} times as long as if all operations of a kind took the same"
    if found.skipped:
        yield f"  {found.skipped} more are not whole, and left out"
    if found.of_last_stage is not None and found.of_slowest is not None:
        yield f"  of the loss, {found.of_slowest:.1%} goes with the slowest 3 % of workers"
        yield f"  and {found.of_last_stage:.1%} with the last stage"
    for each in found.slow:
        yield f"slow: dp rank {each.replica}, stage {each.stage}: alone it costs {each.share:.1%} of the loss"
    if not found.slow:
        yield "no worker computes more slowly than the others of its stage by a tenth"


def _of_dumps(said: Dumps, verdict: Verdict) -> dict[str, Any]:
    return {
        "kind": "dumps",
        "expected": said.expected,
        "read": len(said.records),
        "broken": [{"file": name, "reason": reason} for name, reason in said.broken],
        "blamed": [
            {
                "rank": each.rank, "why": each.why, "group": each.group, "collective": each.collective,
                "seq": each.number,
            }
            for each in verdict.blamed
        ],
        "mismatches": [
            {"group": each.group, "seq": each.number, "field": each.field, "ranks": each.ranks}
            for each in verdict.mismatches
        ],
        "certain": verdict.is_certain,
    }  # fmt: skip


def _lines_of_dumps(said: Dumps, verdict: Verdict) -> Iterator[str]:
    yield f"{len(said.records)} of {said.expected} ranks"
    for name, reason in said.broken:
        yield f"  not read: {name}: {reason}"
    described = {name: group.description for record in said.records.values() for name, group in record.groups.items()}
    for each in verdict.blamed:
        where = " ".join(filter(None, (described.get(each.group), each.group)))
        yield f"rank {each.rank} {_WHY[each.why]}: {each.collective} {each.number} of group {where}"
    for found in verdict.mismatches:
        ranks = ", ".join(map(str, found.ranks))
        yield f"{found.field} differs in {found.collective} {found.number} of group {found.group}: ranks {ranks}"
    if not verdict.blamed:
        yield "no rank is to blame, as far as these dumps show"
    elif not verdict.is_certain:
        yield "this is not certain: dumps are missing, or not all that waits is explained by it"
