"""Compares a list of libraries with the schema of CycloneDX 1.6.

Also checks what no schema can say: each library has a name of its own, and each reference has a library.
"""

import json
import pathlib
import sys

import cyclonedx.schema
import jsonschema_rs

SCHEMAS = pathlib.Path(cyclonedx.schema.__file__).parent / "_res"
# Schemas refer to each other by names below this one.
BASE = "http://cyclonedx.org/schema/"


def schema(name):
    return json.loads((SCHEMAS / name).read_text())


def main(path):
    bom = json.loads(pathlib.Path(path).read_text())
    names = [file.name for file in SCHEMAS.glob("*.schema.json")]
    registry = jsonschema_rs.Registry([(BASE + name, schema(name)) for name in names])
    validator = jsonschema_rs.validator_for(schema("bom-1.6.SNAPSHOT.schema.json"), registry=registry)
    for error in validator.iter_errors(bom):
        sys.exit(f"{path}: {error}")
    names = [part["bom-ref"] for part in [bom["metadata"]["component"], *bom["components"]]]
    if len(names) != len(set(names)):
        sys.exit(f"{path}: a library is listed twice")
    used = {name for entry in bom["dependencies"] for name in [entry["ref"], *entry["dependsOn"]]}
    if used != set(names):
        sys.exit(f"{path}: these are not listed and used: {sorted(used.symmetric_difference(names))}")
    program = bom["metadata"]["component"]
    if program["type"] != "application" or program["name"] != "pondhawk":
        sys.exit(f"{path}: the list is of {program['name']}")
    foreign = [part for part in bom["components"] if not part["name"].startswith("pondhawk-")]
    bare = [part["bom-ref"] for part in foreign if "hashes" not in part or "licenses" not in part]
    if bare or len(foreign) < 20:
        sys.exit(f"{path}: {len(foreign)} libraries, without a checksum or a licence: {bare}")


main(sys.argv[1])
