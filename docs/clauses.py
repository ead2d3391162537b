"""Write `clauses.md`: what is required, why, by which cases, and the faults behind it.

    python docs/clauses.py

Everything on the page stands in `conformance/`: `clauses.toml`, `faults.toml` and the cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mtp_conformance.case import Registration
from mtp_conformance.catalogue import FAULTS_FILE, Catalogue, Fault, read_catalogue
from mtp_conformance.clauses import CLAUSES_FILE, Clause, read_clauses
from mtp_conformance.suite import case_file, load_cases

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("clauses.md")


def page() -> str:
    """The whole page."""
    clauses = read_clauses(ROOT / CLAUSES_FILE)
    catalogue = read_catalogue(ROOT / FAULTS_FILE)
    cases = load_cases(ROOT)
    judged = sum(clause.no_case is None for clause in clauses.values())
    return f"""# Clauses

Written by `python docs/clauses.py`; a test holds it to the code. What a conforming decoder does,
why, and how it is judged. A decoder that breaks a *must* is wrong; a *should* is worth knowing.
Letters: K drafts a round, a of them accepted.

{len(clauses)} clauses, {judged} of them with cases; {len(cases)} cases; {len(catalogue.faults)} faults.

| clause | level | what is required | why | cases | faults |
|---|---|---|---|---|---|
{_lines(_clause_row(clause, cases) for clause in clauses.values())}

## Faults

Faults that real decoders had, from public threads. **Attested**: `ok` a fix was merged or the
thread confirms it, `rev` a reporter's or reviewer's diagnosis, `doc` a changelog says so, `hyp` a
risk that was raised. **Shows** in: S arrays of caches, L logits, T greedy tokens, A acceptance,
drafts and the head's state, D sampled law or seeded stream, C counters, timers and policy,
M memory, X an exception or a hang.

{_lines(_fault_section(letter, kind, catalogue, clauses) for letter, kind in catalogue.kinds.items())}"""


def _clause_row(clause: Clause, cases: Iterable[Registration]) -> str:
    own = [registration for registration in cases if registration.case.clause == clause.anchor]
    links = "<br>".join(_case_link(registration) for registration in own)
    judged = links or f"*None:* {_cell(clause.no_case or '')}"
    faults = " ".join(f"[{id}](#{id})" for id in clause.faults)
    name = f'<a id="{clause.anchor}"></a>`{clause.anchor}`'
    texts = f"{_cell(clause.requirement)} | {_cell(clause.reason)}"
    return f"| {name} | {clause.level} | {texts} | {judged} | {faults} |"


def _case_link(registration: Registration) -> str:
    path = case_file(registration).resolve().relative_to(ROOT).as_posix()
    return f"[`{registration.case.id}`](../{path})"


def _fault_section(
    letter: str, kind: str, catalogue: Catalogue, clauses: Mapping[str, Clause]
) -> str:
    faults = [fault for fault in catalogue.faults.values() if fault.kind == letter]
    return f"""### {letter}: {kind}

| fault | symptom | cause | caught by | shows | attested | clauses |
|---|---|---|---|---|---|---|
{_lines(_fault_row(fault, clauses.values()) for fault in faults)}
"""


def _fault_row(fault: Fault, clauses: Iterable[Clause]) -> str:
    named = [clause.anchor for clause in clauses if fault.id in clause.faults]
    links = " ".join(f"[{anchor}](#{anchor})" for anchor in named)
    sources = " ".join(f"[{n}]({url})" for n, url in enumerate(fault.sources, start=1))
    name = f'<a id="{fault.id}"></a>{fault.id} `{fault.slug}`'
    texts = " | ".join(_cell(text) for text in (fault.symptom, fault.cause, fault.test))
    shows = " ".join(str(place) for place in fault.shows)
    return f"| {name} | {texts} | {shows} | {fault.confidence} {sources} | {links} |"


def _cell(text: str) -> str:
    """A text in which nothing ends a table's cell."""
    return text.replace("|", r"\|")


def _lines(rows: Iterable[str]) -> str:
    return "\n".join(rows)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
