"""What happens in a run, one thing at a time: each returns what is to be sent then."""

from hetsched.dispatch import Dispatcher, Send


def finish(dispatcher: Dispatcher, device: str, chunk: int, now: float) -> list[Send]:
    dispatcher.finish_chunk(device, chunk, now)
    return dispatcher.commands(now)


def leave(dispatcher: Dispatcher, device: str, now: float) -> list[Send]:
    dispatcher.leave_tail(device)
    return dispatcher.commands(now)


def lose(dispatcher: Dispatcher, device: str, now: float) -> list[Send]:
    dispatcher.lose(device)
    return dispatcher.commands(now)


def join(dispatcher: Dispatcher, device: str, now: float) -> list[Send]:
    dispatcher.join(device)
    return dispatcher.commands(now)
