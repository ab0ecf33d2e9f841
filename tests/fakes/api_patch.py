#!/usr/bin/python3
"""The three patch formats of the Kubernetes API, as the real server applies them. Pure."""

import copy


class PatchFailed(Exception):
    """A patch that can't be applied: the server answers 422, for a failed `test` as well."""


# Lists that strategic merge merges by a key, by their last path element. All others are replaced.
MERGE_KEYS = {"conditions": "type", "addresses": "type", "ownerReferences": "uid",
              "containers": "name", "initContainers": "name", "env": "name", "volumes": "name",
              "imagePullSecrets": "name"}
# Lists of plain values that are merged as sets.
MERGE_SETS = {"finalizers"}


def json_patch(document, operations):
    """RFC 6902: add, remove, replace, test, copy, move."""
    if not isinstance(operations, list):
        raise PatchFailed("a JSON patch is a list of operations")
    document = copy.deepcopy(document)
    for operation in operations:
        document = _apply(document, operation)
    return document


def merge_patch(document, patch):
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge_patch(document, patch):
    """Like merge_patch, but the lists in MERGE_KEYS are merged by their key.

    `{"$patch": "delete", KEY: …}` removes an entry, `$patch: replace` replaces object or list.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(document)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            current = result.get(key)
            result[key] = strategic_merge_patch(current if isinstance(current, dict) else {},
                                                value)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key) or [], value)
        else:
            result[key] = value
    return result


def _merge_list(name, current, patch):
    if name in MERGE_SETS:
        return current + [value for value in patch if value not in current]
    merge_key = MERGE_KEYS.get(name)
    if merge_key is None:
        return copy.deepcopy(patch)
    if any(entry.get("$patch") == "replace" for entry in patch):
        return [copy.deepcopy(entry) for entry in patch if "$patch" not in entry]
    result = list(current)
    for entry in patch:
        if merge_key not in entry:
            raise PatchFailed(f"map: {entry} does not contain declared merge key: {merge_key}")
        found = next((index for index, old in enumerate(result)
                      if old.get(merge_key) == entry[merge_key]), None)
        if entry.get("$patch") == "delete":
            if found is not None:
                del result[found]
        elif found is None:
            result.append(copy.deepcopy(entry))
        else:
            result[found] = strategic_merge_patch(result[found], entry)
    return result


def _apply(document, operation):
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise PatchFailed("an operation has no path")
    if kind == "test":
        try:
            value = _get(document, path)
        except PatchFailed:
            value = None
        if value != operation.get("value"):
            raise PatchFailed(f"testing value {path} failed: test failed")
        return document
    if kind in ("add", "replace"):
        if "value" not in operation:
            raise PatchFailed(f"{kind} at {path} has no value")
        if kind == "replace":
            _get(document, path)
        return _set(document, path, copy.deepcopy(operation["value"]), kind == "add")
    if kind == "remove":
        return _remove(document, path)
    if kind in ("copy", "move"):
        value = copy.deepcopy(_get(document, operation.get("from", "")))
        if kind == "move":
            document = _remove(document, operation["from"])
        return _set(document, path, value, True)
    raise PatchFailed(f"unexpected kind: {kind}")


def _tokens(path):
    if path == "":
        return []
    if not path.startswith("/"):
        raise PatchFailed(f"no such path: {path}")
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _index(sequence, token, limit):
    if not token.isdigit() or int(token) > limit:
        raise PatchFailed(f"no index {token} in a list of {len(sequence)}")
    return int(token)


def _step(value, token, path):
    if isinstance(value, list):
        return value[_index(value, token, len(value) - 1)]
    if isinstance(value, dict) and token in value:
        return value[token]
    raise PatchFailed(f"no such path: {path}")


def _get(document, path):
    for token in _tokens(path):
        document = _step(document, token, path)
    return document


def _set(document, path, value, insert):
    tokens = _tokens(path)
    if not tokens:
        return value
    parent = document
    for token in tokens[:-1]:
        parent = _step(parent, token, path)
    last = tokens[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        if last == "-" and insert:
            parent.append(value)
        elif insert:
            parent.insert(_index(parent, last, len(parent)), value)
        else:
            parent[_index(parent, last, len(parent) - 1)] = value
    else:
        raise PatchFailed(f"no such path: {path}")
    return document


def _remove(document, path):
    tokens = _tokens(path)
    if not tokens:
        raise PatchFailed("the whole document can't be removed")
    parent = document
    for token in tokens[:-1]:
        parent = _step(parent, token, path)
    _step(parent, tokens[-1], path)
    if isinstance(parent, list):
        del parent[_index(parent, tokens[-1], len(parent) - 1)]
    else:
        del parent[tokens[-1]]
    return document
