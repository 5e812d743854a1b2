"""Checks the manifests and the monitoring files of this folder without a cluster.

- Kubernetes' objects must match its API's schemas.
- Every expression of the alert rules and of the dashboard must be valid PromQL, and name metrics of the server.

    pip install --require-hashes -r ci/requirements/manifests.txt
    python docker/check.py METRICS     # what a server's /metrics printed
"""

import json
import re
import sys
from pathlib import Path

import kubernetes_validate
import promql_parser
import yaml

HERE = Path(__file__).parent


def objects(file):
    return [document for document in yaml.safe_load_all((HERE / file).read_text()) if document]


def expressions():
    for group in objects("monitoring/alerts.yml")[0]["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    for panel in json.loads((HERE / "monitoring/dashboard.json").read_text())["panels"]:
        # A row has panels instead of targets.
        for target in panel.get("targets", []):
            yield target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*").replace("$instance", ".*")


def main():
    for file in ("compose.yaml", "monitoring/prometheus.yml", "monitoring/datasources.yml", "monitoring/dashboards.yml"):
        assert objects(file), file
    checked = objects("kubernetes/deployment.yaml")
    for document in checked:
        kubernetes_validate.validate(document, "1.33", strict=True)
    described = set(re.findall(r"^# TYPE (\S+)", Path(sys.argv[1]).read_text(), re.MULTILINE))
    # Metrics without a sample, such as a GPU's sensors on a machine without one, are not printed.
    source = (HERE / "../crates/serve/src/metrics.rs").read_text()
    described |= {f"hipvit_{name}" for name in re.findall(r'register!\(\s*"(\w+)"', source)}
    count = 0
    for expression in expressions():
        promql_parser.parse(expression)
        for name in re.findall(r"\bhipvit_\w+", expression):
            family = re.sub(r"_(total|bucket|sum|count)$", "", name)
            if family not in described and name not in described:
                raise SystemExit(f"{expression}: the server has no metric {name}")
        count += 1
    print(f"{len(checked)} objects are valid, {count} expressions parse and name metrics of the server")


main()
