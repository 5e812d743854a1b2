"""How the workers of Ray Train find each other."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig


def _address() -> tuple[str, int]:
    """The address of rank 0's machine, and a free port."""
    with socket.socket() as free:
        free.bind(("", 0))
        return ray.util.get_node_ip_address(), free.getsockname()[1]


def _set(variables: dict[str, str]) -> None:
    os.environ.update(variables)


class _Backend(Backend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        address, port = worker_group.execute_single(0, _address)
        # Ranks recognise each other by the secret.
        secret = secrets.token_hex(16)
        variables = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "HIPVIT_RENDEZVOUS_SECRET": secret}
        worker_group.execute(_set, variables)


class RendezvousConfig(BackendConfig):
    """Sets the variables of a launcher that all workers share."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _Backend
