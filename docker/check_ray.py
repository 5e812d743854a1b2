"""Checks kubernetes/ray.yaml without a cluster: the pods and the claim against the API's schemas, the structure that KubeRay's RayJob has,
that its images' version of Ray is ray.Dockerfile's, and that the entrypoint is a command line that hipvit.ray has.

    pip install --require-hashes -r ci/requirements/manifests.txt
    python docker/check_ray.py
"""

import re
import shlex
from pathlib import Path

import kubernetes_validate
import yaml

HERE = Path(__file__).parent


def pod(name, template):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template["spec"]}


def main():
    job, claim = (document for document in yaml.safe_load_all((HERE / "kubernetes/ray.yaml").read_text()) if document)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    version = re.search(r"^ARG RAY=(\S+)$", (HERE / "ray.Dockerfile").read_text(), re.MULTILINE)[1]
    assert cluster["rayVersion"] == version, f"ray.yaml has Ray {cluster['rayVersion']}, ray.Dockerfile {version}"
    pods = [pod("head", cluster["headGroupSpec"]["template"])]
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        worker = pod(group["groupName"], group["template"])
        gpus = worker["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"]
        assert group["rayStartParams"]["num-gpus"] == gpus, "Ray and Kubernetes count different GPUs"
        pods.append(worker)
    for document in [*pods, claim]:
        kubernetes_validate.validate(document, "1.33", strict=True)
        volumes = {volume["name"] for volume in document["spec"].get("volumes", [])}
        for container in document["spec"].get("containers", []):
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            assert mounts <= volumes, mounts - volumes
    options = set(re.findall(r'"(--?[a-z-]+)"', (HERE / "../python/hipvit/ray/__main__.py").read_text()))
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:3] == ["python", "-m", "hipvit.ray"]
    unknown = {word for word in words[3:] if word.startswith("-")} - options
    assert not unknown, f"hipvit.ray has no {unknown}"
    print(f"{len(pods)} pods and a claim are valid; the entrypoint's options exist")


main()
