"""A PostgreSQL whose certificate is not accepted: no service may use it, and one sentence says why."""

import asyncio
import ssl
from pathlib import Path

import pytest

from sharequeue.postgres_connection import UnfitStore, connect
from sharequeue.service.postgres_faults import meaning_of
from tests.certificates import Authority

WRONG = {
    "authority": "unable to get local issuer certificate",
    "host": "IP address mismatch",
    "expired": "certificate has expired",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_certificate_is_an_unfit_store_and_not_a_fault_of_the_statement(tmp_path: Path, wrong: str) -> None:
    authority = Authority(tmp_path)
    signer = Authority(tmp_path / "other") if wrong == "authority" else authority
    offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    offered.load_cert_chain(
        *signer.pair(wrong, "10.0.0.9" if wrong == "host" else "127.0.0.1", expired=wrong == "expired")
    )

    async def agree_to_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        try:
            await writer.start_tls(offered)
        except OSError:
            writer.close()

    async def use_it() -> None:
        async with await asyncio.start_server(agree_to_tls, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"postgresql://queue:secret@127.0.0.1:{port}/queue?sslmode=verify-full&sslrootcert={authority.file}"
            await connect(url, "tests", {})

    with pytest.raises(UnfitStore, match=WRONG[wrong]) as refused:
        asyncio.run(use_it())
    meaning = meaning_of(refused.value)
    assert (meaning.passes, meaning.definite) == (True, True)
    assert "secret" not in meaning.sentence
