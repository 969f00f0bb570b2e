"""The daemon's rules: events in, commands out, no socket anywhere."""

from __future__ import annotations

import pytest
from daemon_story import MIB, OWNER, Story, refused, states

from hetsched.daemon import commands as do
from hetsched.daemon.jobs.transitions import FETCH_SECONDS, PROGRESS_INTERVAL
from hetsched.daemon.limits import ended_jobs
from hetsched.errors import ErrorRecord, ProtocolError
from hetsched.job import (
    ArenaOut,
    ArenaRef,
    JobSpec,
    Queued,
    Running,
    ended,
)
from hetsched.transport import messages as say


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_session_that_does_not_start_with_hello_is_closed(story: Story) -> None:
    story.core.on_connect(1, OWNER)
    answer, hang_up = story.core.on_session_request(1, say.Allocate(5))
    assert refused([answer]).code == 76
    assert hang_up == do.CloseSession(1)


def test_another_protocol_is_refused_with_both_versions(story: Story) -> None:
    story.core.on_connect(1, OWNER)
    answer, hang_up = story.core.on_session_request(1, say.Hello(99, "7.0", 5))
    assert "protocol 99" in refused([answer]).message
    assert hang_up == do.CloseSession(1)


def test_a_wrong_token_is_not_served(story: Story) -> None:
    assert refused(story.ask("nonsense", say.Ping())).code == 77


def test_a_token_dies_with_its_session(story: Story) -> None:
    token = story.hello(1)
    assert isinstance(story.ask(token, say.Ping())[0].reply.answer, say.Pong)  # type: ignore[union-attr]
    story.core.on_disconnect(1, story.now)
    assert refused(story.ask(token, say.Ping())).code == 77


def test_the_engine_explains_a_known_job(story: Story) -> None:
    token = story.hello(1)
    ticket = story.submit(token)
    assert story.ask(token, say.Explain(ticket), 4) == [do.ExplainJob(token.encode(), 4, ticket)]
    assert refused(story.ask(token, say.Explain(99))).code == 66


def test_a_segment_belongs_to_its_session_until_it_ends(story: Story) -> None:
    story.hello(1)
    assert story.core.on_session_request(1, say.Allocate(5)) == [do.AllocateSegment(1, 5)]
    assert story.core.on_allocated(1, 7, MIB) == [
        do.AnswerSession(1, say.SegmentFd(7, MIB, True), 7)
    ]
    assert story.core.on_disconnect(1, story.now) == [do.ReleaseSegment(7)]


def test_a_segment_for_a_session_that_has_ended_is_released(story: Story) -> None:
    story.hello(1)
    story.core.on_disconnect(1, story.now)
    assert story.core.on_allocated(1, 7, MIB) == [do.ReleaseSegment(7)]


def test_a_descriptor_is_sent_to_a_session_only_once(story: Story) -> None:
    story.hello(1)
    story.core.on_allocated(1, 7, MIB)
    assert story.core.on_session_request(1, say.Drop(7)) == [do.ReleaseSegment(7)]
    assert story.core.on_allocated(1, 7, MIB) == [
        do.AnswerSession(1, say.SegmentFd(7, MIB, False), None)
    ]
    assert story.core.on_segment_discarded(7) == [do.AnswerSession(1, say.Discarded(7))]
    assert story.core.on_allocated(1, 7, MIB)[0].segment == 7  # type: ignore[union-attr]


def test_dropping_what_one_does_not_hold_changes_nothing(story: Story) -> None:
    story.hello(1)
    assert story.core.on_session_request(1, say.Drop(7)) == []


def test_a_job_on_another_sessions_segment_is_refused(story: Story) -> None:
    mine, _ = story.hello(1), story.hello(2)
    story.core.on_allocated(2, 7, MIB)
    for spec in (
        JobSpec(workload="w", params={}, inputs={"": ArenaRef(7, (1,), "u1")}),
        JobSpec(workload="w", params={}, outputs={"": ArenaOut(ArenaRef(7, (1,), "u1"))}),
    ):
        assert refused(story.ask(mine, say.Submit(spec))).code == 65


def test_a_stopping_daemon_takes_no_jobs_and_gives_no_memory(story: Story) -> None:
    token = story.hello(1)
    story.core.drain()
    assert refused(story.ask(token, say.Submit(JobSpec(workload="w", params={})))).code == 75
    assert refused(story.core.on_session_request(1, say.Allocate(5))).code == 75


def test_a_refusal_by_the_engine_reaches_the_requester(story: Story) -> None:
    token = story.hello(1)
    (start,) = story.ask(token, say.Submit(JobSpec(workload="w", params={})), 9)
    answer = story.core.on_engine_reply(start.ticket, ErrorRecord(65, "too big"), 0.0)  # type: ignore[union-attr]
    assert answer == [do.SendReply(b"t1", say.Reply(9, say.Refused(ErrorRecord(65, "too big"))))]


def test_of_a_short_job_only_the_end_is_reported(story: Story) -> None:
    job = story.submit(story.hello(1))
    assert story.state(Queued(job, 0)) == []
    assert story.state(Running(job, "computing")) == []
    assert [ended(state) for state in states(story.done(job))] == [True]


def test_progress_comes_four_times_a_second_at_most(story: Story) -> None:
    job = story.submit(story.hello(1))
    reported = 0
    for _ in range(1000):
        story.now += 0.001
        reported += len(states(story.state(Running(job, "computing"))))
    assert 3 <= reported <= 4


def test_the_last_progress_is_reported_even_if_none_follows(story: Story) -> None:
    job = story.submit(story.hello(1))
    story.state(Running(job, "computing"))
    due = story.core.next_tick()
    assert due == pytest.approx(story.now + PROGRESS_INTERVAL)
    assert states(story.core.on_tick(due)) == [Running(job, "computing")]
    assert story.core.next_tick() is None


def test_a_queued_job_is_reported_at_once(story: Story) -> None:
    job = story.submit(story.hello(1))
    assert states(story.state(Queued(job, 3))) == [Queued(job, 3)]


def test_a_follower_hears_the_present_state_then_the_end(story: Story) -> None:
    job, other = story.submit(story.hello(1)), story.hello(2)
    story.state(Running(job, "computing"))
    assert states(story.ask(other, say.Follow(job), 4)) == [Running(job, "computing")]
    replies = [command for command in story.done(job) if isinstance(command, do.SendReply)]
    assert [command.reply.number for command in replies] == [1, 4]
    assert not any(command.droppable for command in replies)


def test_following_an_ended_job_is_answered_once(story: Story) -> None:
    token = story.hello(1)
    job = story.submit(token)
    story.done(job)
    assert [ended(state) for state in states(story.ask(token, say.Follow(job)))] == [True]


def test_an_unknown_job_is_66_and_the_error_gives_the_newest(story: Story) -> None:
    token = story.hello(1)
    story.submit(token)
    for request in (say.Show(9), say.Follow(9), say.Cancel(9)):
        error = refused(story.ask(token, request))
        assert (error.code, "newest is 1" in error.message) == (66, True)


def test_cancelling_is_passed_to_the_engine_except_for_ended_jobs(story: Story) -> None:
    token = story.hello(1)
    job = story.submit(token)
    assert do.CancelJob(job) in story.ask(token, say.Cancel(job))
    story.done(job)
    assert do.CancelJob(job) not in story.ask(token, say.Cancel(job))


def test_a_dead_clients_job_continues_without_reports(story: Story) -> None:
    job = story.submit(story.hello(1))
    story.core.on_disconnect(1, story.now)
    assert story.done(job, 7) == []
    assert story.core.ledger.jobs[job].kept_results == {7: MIB}


def test_a_result_is_kept_for_its_time_and_then_released() -> None:
    story = Story(results_for=60.0)
    job = story.submit(story.hello(1))
    story.done(job, 7)
    assert story.core.next_tick() == 160.0
    assert story.core.on_tick(159.0) == []
    assert story.core.on_tick(160.0) == [do.ReleaseSegment(7)]
    assert story.core.next_tick() is None


def test_free_memory_is_trimmed_after_a_while_without_clients() -> None:
    story = Story(results_for=0.0, warm_for=30.0)
    job = story.submit(story.hello(1), follow=False)
    story.core.on_disconnect(1, story.now)
    assert story.core.next_tick() is None  # the job still runs
    story.done(job, 7)
    assert story.core.on_tick(110.0) == [do.ReleaseSegment(7)]
    assert story.core.on_tick(139.0) == []
    assert story.core.on_tick(140.0) == [do.Trim()]
    assert story.core.next_tick() is None


def test_free_memory_is_kept_if_a_client_connects_in_time(story: Story) -> None:
    story.hello(1)
    story.core.on_disconnect(1, story.now)
    assert story.core.next_tick() == story.now + 60.0
    story.hello(2)
    assert story.core.next_tick() is None


def test_any_client_gets_the_result_of_any_job_in_time(story: Story) -> None:
    job = story.submit(story.hello(1))
    story.done(job, 7)
    story.hello(2)
    retain, tell = story.core.on_session_request(2, say.Map(7))
    assert (retain, tell) == (
        do.RetainSegment(7),
        do.AnswerSession(2, say.SegmentFd(7, MIB, True), 7),
    )
    assert story.core.on_session_request(2, say.Drop(7)) == [do.ReleaseSegment(7)]
    error = refused(story.core.on_session_request(2, say.Map(8)))
    assert error.code == 66
    assert "no longer in the daemon's memory, which keeps it for 10 min" in error.message


def test_a_result_that_its_submitter_has_had_is_free(story: Story) -> None:
    job = story.submit(story.hello(1))
    story.done(job, 7)
    story.core.on_session_request(1, say.Map(7))
    assert story.core.on_session_request(1, say.Drop(7)) == [
        do.ReleaseSegment(7),
        do.ReleaseSegment(7),
    ]


def test_an_array_of_the_callers_own_is_not_kept(story: Story) -> None:
    token = story.hello(1)
    story.core.on_allocated(1, 7, MIB)
    out = ArenaOut(ArenaRef(7, (1,), "u1"))
    job = story.submit(token, JobSpec(workload="w", params={}, outputs={"": out}))
    assert do.ReleaseSegment(7) in story.done(job, 7)
    assert story.core.ledger.jobs[job].kept_results == {}


def test_results_past_the_quota_go_oldest_first_but_not_those_on_their_way() -> None:
    story = Story(results=3 * MIB)
    token = story.hello(1)
    for segment in (11, 12):
        story.done(story.submit(token), segment, size=2 * MIB)
    assert story.core.on_memory_pressure(1, story.now) == []
    story.now += FETCH_SECONDS
    job = story.submit(token)
    assert story.done(job, 13, size=2 * MIB)[1:] == [do.ReleaseSegment(11), do.ReleaseSegment(12)]


def test_a_result_waits_for_its_followers_only_while_they_live() -> None:
    story = Story(results_for=0.0)
    story.done(story.submit(story.hello(1)), 7)
    assert story.core.on_tick(story.now + FETCH_SECONDS - 1) == []
    story.core.on_disconnect(1, story.now)
    assert story.core.on_tick(story.now) == [do.ReleaseSegment(7)]


def test_pressure_releases_as_much_as_is_lacking(story: Story) -> None:
    token = story.hello(1)
    for segment in (11, 12, 13):
        story.done(story.submit(token, follow=False), segment)
    assert story.core.on_memory_pressure(MIB + 1, story.now) == [
        do.ReleaseSegment(11),
        do.ReleaseSegment(12),
    ]


def test_a_result_that_is_still_used_makes_no_room_and_stays(story: Story) -> None:
    token = story.hello(1)
    for segment in (11, 12, 13):
        story.done(story.submit(token, follow=False), segment)
    story.core.on_session_request(1, say.Map(11))
    reading = JobSpec(workload="w", params={}, inputs={"": ArenaRef(12, (1,), "u1")})
    story.core.on_session_request(1, say.Map(12))
    story.submit(token, reading, follow=False)
    story.core.ledger.sessions[1].drop(12)
    assert story.core.on_memory_pressure(2 * MIB, story.now) == [do.ReleaseSegment(13)]
    assert story.core.ledger.results.job_keeping(11) is not None


def test_a_job_that_the_engine_failed_over_is_refused_and_forgotten(story: Story) -> None:
    wanted = story.ask(story.hello(1), say.Submit(JobSpec(workload="w", params={})))
    (start,) = [command for command in wanted if isinstance(command, do.SubmitJob)]
    error = ErrorRecord(70, "oops")
    assert refused(story.core.on_engine_error(start.ticket, error, 0.0)) == error
    assert story.core.on_engine_error(start.ticket, error, 0.0) == []
    assert story.core.ledger.open_jobs() == 0


def test_history_is_bounded(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_jobs, "MAX_ENDED_JOBS", 3)
    token = story.hello(1)
    jobs = [story.submit(token) for _ in range(5)]
    released = [story.done(job, 100 + job) for job in jobs]
    assert sorted(story.core.ledger.jobs) == jobs[2:]
    assert do.ReleaseSegment(101) in released[3]


def test_a_list_of_long_specs_fits_one_message(story: Story) -> None:
    token = story.hello(1)
    for _ in range(30):
        story.submit(token, JobSpec(workload="w", params={"text": "x" * 100_000}))
    (read,) = story.ask(token, say.Status())
    (send,) = story.core.on_positions(read.identity, read.number, read.jobs, {})  # type: ignore[union-attr]
    answer = send.reply.answer  # type: ignore[union-attr]
    assert isinstance(answer, say.JobList)
    assert [line.job for line in answer.jobs] == list(range(21, 31))
    assert answer.has_earlier


def test_following_too_many_jobs_is_refused() -> None:
    story = Story(followed_jobs=3)
    token = story.hello(1)
    job = story.submit(token, follow=False)
    for _ in range(3):
        story.ask(token, say.Follow(job))
    assert refused(story.ask(token, say.Follow(job))).code == 75


def test_bytes_that_mean_nothing_are_answered_without_a_number(story: Story) -> None:
    (send,) = story.core.on_undecodable_request(b"x", ProtocolError("?"))
    assert send.reply.number == 0  # type: ignore[union-attr]


def test_an_adopted_segment_belongs_to_its_session_which_has_its_descriptor(story: Story) -> None:
    story.hello(1)
    assert story.core.on_session_request(1, say.Adopt()) == [do.AdoptSegment(1)]
    assert story.core.on_adopted(1, 7, MIB) == [
        do.AnswerSession(1, say.SegmentFd(7, MIB, False), None)
    ]
    assert story.core.on_disconnect(1, story.now) == [do.ReleaseSegment(7)]
