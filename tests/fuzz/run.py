"""Coverage-guided fuzzing of one family, or of all in turn.

``python tests/fuzz/run.py FAMILY [--seconds S | --runs N]``
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

_HERE = Path(__file__).parent
_FAMILIES = (
    "messages", "names", "datagrams", "probes", "spans", "configurations", "memories", "dumps", "ranks", "kernel_logs", "native",
    *(("states",) if importlib.util.find_spec("torch") else ()),
)  # fmt: skip
_MOST_MIB = 4_096
"""Of a fuzzing process; one that takes more has found something. What watches comparisons (atheris 3.0.0) keeps the
result of each of numpy's for ever, some kilobytes an input: a leak of the tool, which an hour of `messages` does not
fill this with."""


def main() -> int:
    """Fuzzes; the number of families in which something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(_FAMILIES))
    parser.add_argument("--seconds", type=int, default=30, help="for each family (30)")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each family, instead of a time")
    parser.add_argument("--seed", type=int, default=0, help="the same seed and runs give the same inputs; 0: any")
    given = parser.parse_args()
    if unknown := set(given.families) - set(_FAMILIES):
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(_FAMILIES)}")
    _load(_READERS if given.runs else (*_READERS, *_CORES))
    found = [family for family in given.families or _FAMILIES if _status(family, given)]
    sys.stdout.write(f"found something in: {', '.join(found)}\n" if found else "found nothing\n")
    return len(found)


def _load(packages: tuple[str, ...]) -> None:
    """Imports the targets, instrumented, once for all families: that takes longer than many an input."""
    import atheris  # noqa: PLC0415 - only where something is fuzzed

    sys.path[:0] = [str(_HERE), str(_HERE.parent / "support")]  # as pytest's own path has them
    # Not foliot_probe: it is columns without branches, whose comparisons would fill the memory (see _MOST_MIB).
    with atheris.instrument_imports(include=["targets", "foliot", *(f"foliot_{each}" for each in packages)]):
        import targets  # noqa: F401, PLC0415 - instrumented while it is imported


def _status(family: str, given: argparse.Namespace) -> int:
    """How the fuzzing of a family ended, in a process of its own: what fuzzes never returns.

    The corpus stays, with what was found, if anything was.
    """
    sys.stdout.flush()
    if family == "native":
        return _sanitized(0 if given.runs else given.seconds)
    corpus = Path(tempfile.mkdtemp(prefix=f"foliot-fuzz-{family}-"))
    if child := os.fork():
        if not (status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])):
            shutil.rmtree(corpus)
        return status
    try:
        _fuzz(family, corpus, given)
    except Exception:  # noqa: BLE001 - whatever it is, the other families are fuzzed
        traceback.print_exc()
    finally:
        os._exit(1)


def _sanitized(seconds: int) -> int:
    import sanitized  # noqa: PLC0415 - as the targets

    return sanitized.run(seconds)


def _fuzz(family: str, corpus: Path, given: argparse.Namespace) -> None:
    import atheris  # noqa: PLC0415 - as above
    import mutation  # noqa: PLC0415 - as the seeds
    import seeds  # noqa: PLC0415 - after what it shares with the targets
    import targets  # noqa: PLC0415 - is there already

    for number, seed in enumerate(seeds.of(family)):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-runs={given.runs}"] if given.runs else [f"-max_total_time={given.seconds}"]
    options = [*limits, f"-seed={given.seed}", f"-rss_limit_mb={_MOST_MIB}", "-timeout=10", "-max_len=4096"]
    sys.stdout.write(f"{family}: {corpus}\n")
    sys.stdout.flush()
    arguments = [sys.argv[0], *options, f"-artifact_prefix={corpus}/found-", str(corpus)]
    targets.FAMILIES[family](b"")  # what it imports at its first input takes longer than an input may
    heads = {"messages": 1, "datagrams": 0}  # bytes before the msgpack
    if family not in heads:
        atheris.Setup(arguments, targets.FAMILIES[family])
    else:

        def mutate(data: bytes, most: int, seed: int) -> bytes:
            by_structure = mutation.mutate(data, heads[family], seed) if seed % 4 else data
            return by_structure if by_structure != data else bytes(atheris.Mutate(data, most))

        atheris.Setup(arguments, targets.FAMILIES[family], custom_mutator=mutate)
    atheris.Fuzz()


_READERS = ("schemas", "agent", "gateway", "lab")
_CORES = ("detector", "remediator", "sync")
"""They are run by any input that decodes, and watched where there is time to learn their ways: to instrument them takes
longer than some hundred inputs of each family."""

if __name__ == "__main__":
    sys.exit(main())
