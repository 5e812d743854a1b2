"""Every field of the objects in a file must be one of KServe's or Kubernetes' own types, as KServe's package has them.
Usage: kserve_manifests.py FILE"""

import sys
from pathlib import Path

import kserve
import kubernetes.client
import yaml

TYPES = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}


def check(value, name, path):
    kind = getattr(kserve, name, None) or getattr(kserve.models, name, None) or getattr(kubernetes.client, name, None)
    if not hasattr(kind, "attribute_map"):
        return
    fields = {field: attribute for attribute, field in kind.attribute_map.items()}
    for field, inner in value.items():
        if field not in fields:
            raise SystemExit(f"{path}: {name} has no field {field}")
        of = kind.openapi_types[fields[field]]
        items = inner if isinstance(inner, list) else [inner]
        for item in items:
            if isinstance(item, dict):
                check(item, of.removeprefix("list[").removesuffix("]"), f"{path}.{field}")


for document in yaml.safe_load_all(Path(sys.argv[1]).read_text()):
    check(document, TYPES[document["kind"]], document["kind"])
    print(f"{document['kind']}: every field is known")
