"""The laboratory: what measures hcfs, tortures it and breaks it, and the harness that the tests share with that.

No part of the package that users install. `tools/lab` starts its commands; the tests import it, and it imports no test.
"""
