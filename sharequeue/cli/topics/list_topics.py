"""`sharequeue topics list`."""

import click
import msgspec

from sharequeue.cli.output import ask, decode, echo_json, json_option, run, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import ListTopicsQuery, TopicList, TopicListing


@run
async def list_all(*, as_json: bool, url: str) -> None:
    listed: list[TopicListing] = []
    page_token = None
    while True:
        answer = await ask(url, apis.LIST_TOPICS, ListTopicsQuery(page_token=page_token))
        page: TopicList = decode(answer, apis.LIST_TOPICS)
        listed += page.topics
        page_token = page.next_page_token
        if page_token is None:
            break
    if as_json:
        echo_json(msgspec.json.encode({"topics": listed}))
        return
    show_table(
        ("topic", "#partitions", "topic id"), [(topic.name, topic.partitions, topic.topic_id) for topic in listed]
    )


@click.command("list")
@json_option
@url_option
def list_topics(as_json: bool, url: str) -> None:
    """List topics."""
    list_all(as_json=as_json, url=url)
