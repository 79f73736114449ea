"""The delays of ../delays.tsv."""

import pathlib

from admission import delay

table = pathlib.Path(__file__).parent.parent / "delays.tsv"
rows = [line.split() for line in table.read_text().splitlines()[1:]]
for attempt, retry_after, chance, seconds in rows:
    found = delay(int(attempt), None if retry_after == "-" else int(retry_after), float(chance))
    assert abs(found - float(seconds)) < 1e-9, (attempt, retry_after, chance, found)
print(len(rows), "delays")
