"""Golden vectors: what the right values are, in files that any language can read.

`golden/README.md` is the page for those who use them. Here is how they are made (`making`),
written (`writing`), read and refused (`reading`), compared (`comparing`) and explained
(`explaining`).
"""
