"""The configuration that points LMCache's `fs_native` adapter at a namespace.

Source of the fields: `FSNativeL2AdapterConfig` in lmcache/v1/distributed/l2_adapters/fs_native_l2_adapter.py of LMCache
0.5.6.
"""

from __future__ import annotations

import json
import os

WORKERS_DEFAULT = 4


def adapter_spec(
    directory: str | os.PathLike[str],
    namespace: str,
    *,
    num_workers: int = WORKERS_DEFAULT,
    use_odirect: bool = True,
) -> dict[str, str | int | bool]:
    """The value of LMCache's `--l2-adapter` for `namespace` of the file system mounted at `directory`.

    It has no `relative_tmp_dir` (files there don't carry the `.tmp` by which hcfs knows an unfinished store) and no
    `eviction` or `max_capacity_gb` (hcfs makes room itself, and knows of every server that shares the namespace).
    `num_workers` is the number of LMCache's threads that read and write. ValueError for a value that LMCache would
    refuse or misread.
    """
    if namespace in ("", ".", "..", ".hcfs") or "/" in namespace or "\0" in namespace:
        raise ValueError(f"{namespace!r} is not the name of a namespace: use one path component, such as 'kv'")
    if isinstance(num_workers, bool) or num_workers < 1:
        raise ValueError(f"num_workers is {num_workers}, and LMCache needs at least 1")
    base_path = os.path.join(os.path.abspath(os.fspath(directory)), namespace)
    try:
        base_path.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{base_path!r} is not UTF-8, which LMCache's JSON needs: use another mount directory or namespace"
        ) from None
    return {"type": "fs_native", "base_path": base_path, "num_workers": num_workers, "use_odirect": use_odirect}


def adapter_json(
    directory: str | os.PathLike[str],
    namespace: str,
    *,
    num_workers: int = WORKERS_DEFAULT,
    use_odirect: bool = True,
) -> str:
    """`adapter_spec` as one line of JSON, ready to be quoted behind `--l2-adapter`."""
    return json.dumps(adapter_spec(directory, namespace, num_workers=num_workers, use_odirect=use_odirect))
