"""Tokens that look like Slurm's; no Slurm would take them."""

import base64
import json


def token(user: str = "alice", expires_s: float | None = 2_000_000.0, **more: object) -> str:
    said = {"iat": 1, "sun": user, **({} if expires_s is None else {"exp": expires_s}), **more}
    parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps(said)]
    coded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, "c2lnbmF0dXJl"])
