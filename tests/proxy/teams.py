"""A proxy that takes a token of each team, and shows gateways the team's key."""

import secrets
from pathlib import Path

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until

TEAMS = ("red", "blue")


def write_teams(stack: Stack, file: Path) -> dict[str, str]:
    """Give each team a key, the rights to topics of its name, and a line in `file`. Returns: the tokens by team."""
    assert stack.admin_key is not None
    admin = {"Authorization": f"Bearer {stack.admin_key.read_text()}"}
    tokens = {team: secrets.token_hex(32) for team in TEAMS}
    with httpx.Client(base_url=stack.url, headers=admin, timeout=60) as gateway, file.open("w") as lines:
        file.chmod(0o600)
        for team, token in tokens.items():
            right = {"principal": f"User:{team}", "resource_type": "TOPIC", "pattern_type": "PREFIXED"}
            wanted = [{**right, "resource_name": f"{team}-", "operation": each} for each in ("WRITE", "CREATE")]
            gateway.post("/v1/acls", json={"acls": wanted}).raise_for_status()
            key = gateway.post("/v1/keys", json={"principal": f"User:{team}"}).raise_for_status().json()["key"]
            lines.write(f'"Bearer {token}" "Bearer {key}";\n')
            known = {"Authorization": f"Bearer {key}"}
            wait_until(lambda known=known: gateway.get("/v1/topics", headers=known).status_code == 200)  # type: ignore[misc]
    return tokens


def check_teams(proxy: httpx.Client, tokens: dict[str, str]) -> None:
    body = {"records": [{"value": 1}]}
    for team, token in tokens.items():
        for other in TEAMS:
            answer = proxy.post(
                f"/v1/topics/{other}-orders/records", json=body, headers={"Authorization": f"Bearer {token}"}
            )
            assert answer.status_code == (200 if other == team else 403), answer.text
            assert team == other or answer.json()["code"] == "TOPIC_AUTHORIZATION_FAILED"
    for header in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {secrets.token_hex(32)}"}):
        answer = proxy.get("/v1/topics", headers=header)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), answer.text
        assert "sq_" not in answer.text
