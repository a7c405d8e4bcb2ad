"""Data of one's own: `Data` holds it in Python, and `SCHEME:PATH?...` names it in a settings file.

`own` has `Data` itself; `arrays` makes a bank of arrays, as all others do in the end; `folder`, `table` and `saved`
read files; `names` reads what settings call data by; `advice` says what data says of a fleet. Needs numpy only, and
what a kind of file needs where one is read.
"""

from shoal.data.sources.names import BROUGHT, SCHEMES, beside, bring, bring_later, is_source, placed, read
from shoal.data.sources.own import MEMORY, Data

__all__ = ["BROUGHT", "MEMORY", "SCHEMES", "Data", "beside", "bring", "bring_later", "is_source", "placed", "read"]
