"""`make bench`, or `python -m tests.bench NAME ...` for some of them."""

import importlib
import pkgutil
import sys
from pathlib import Path

NAMES = [
    module.name
    for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    if not module.name.startswith("_") and module.name != "harness"
]

# vLLM's processes import this file again.
if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(NAMES)}")
        importlib.import_module(f"tests.bench.{name}").main()
