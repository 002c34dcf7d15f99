"""What the embedded broker is told."""

from headway.plane.kafka import broker_settings


def test_every_internal_topic_has_one_replica() -> None:
    settings = broker_settings(port=1, controller_port=2)
    replicated = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    assert {settings[f"{topic}.replication.factor"] for topic in replicated} == {"1"}


def test_topics_are_never_created_by_accident() -> None:
    assert broker_settings(port=1, controller_port=2)["auto.create.topics.enable"] == "false"


def test_only_this_machine_reaches_it() -> None:
    settings = broker_settings(port=1111, controller_port=2222)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:2222"
