"""Makes and lists bitmaps with CRoaring: croaring.py (make|list) (32|64) FROM TO, again and again.

make: from a file of numbers, one a line, to a bitmap. list: from a bitmap to a file of numbers.
"""

import sys

from pyroaring import BitMap, BitMap64

KINDS = {"32": BitMap, "64": BitMap64}
# What is subtracted again: segments are made so.
OTHERS = {"32": [1 << 28], "64": [part << 32 for part in range(5, 8)]}

args = sys.argv[1:]
for verb, kind, source, target in zip(*[iter(args)] * 4, strict=True):
    if verb == "make":
        with open(source) as numbers:
            bitmap = KINDS[kind](int(number) for number in numbers)
        others = KINDS[kind](OTHERS[kind])
        bitmap |= others
        bitmap -= others
        bitmap.run_optimize()
        with open(target, "wb") as file:
            file.write(bitmap.serialize())
    else:
        with open(source, "rb") as file:
            bitmap = KINDS[kind].deserialize(file.read())
        with open(target, "w") as numbers:
            numbers.writelines(f"{number}\n" for number in bitmap)
