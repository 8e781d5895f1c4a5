"""Commands: each is carried out once by the handler of its verb, and answered as often as it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from foliot import tracing
from foliot_agent.control.action_handlers import Confirmed, outcome_of
from foliot_agent.core.command_guard import judge
from foliot_schemas import OrderError, Outcome
from foliot_schemas.bounds import fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foliot.clock import Clock
    from foliot_agent.control.action_handlers import ActionHandler, Result
    from foliot_agent.control.lease_fence import LeaseFence
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.settings import Policy
    from foliot_schemas import Command, OutcomeStatus

log = structlog.get_logger()

_REASON_CHARACTERS = 512
"""An error may quote what it found, of any length; a reader wants a line."""


@dataclass(kw_only=True, eq=False)
class CommandRunner:
    """All that verbs have in common: fence, deadline, policy, advice, and that nothing is done twice.

    Raises:
        ValueError: two handlers have the same verb.
    """

    node: str
    policy: Policy
    handlers: Iterable[ActionHandler]
    clock: Clock
    publish: Callable[[Outcome], None]
    """Hands an outcome to the bus, which keeps it until it is stored."""
    fence: LeaseFence
    """The fence of commands, and of values in the bucket `paths`."""
    restart_cache: RestartCache
    """Holds the answers: the same command twice gets the same and does nothing twice, over a restart too."""

    def __post_init__(self) -> None:
        self._handlers: dict[str, ActionHandler] = {}
        for handler in self.handlers:
            for verb in handler.verbs:
                if self._handlers.setdefault(verb, handler) is not handler:
                    raise ValueError(f"the verb {verb} has two handlers")
        self.restart_cache.recall()
        self._under_way: set[str] = set()

    async def on_command(self, command: Command) -> None:
        """Carries out a command, once, and answers it, as often as it comes."""
        if (answered := self.restart_cache.answer(command.id)) is not None:
            self.publish(answered)
            return
        if command.id in self._under_way:
            return
        self._under_way.add(command.id)
        try:
            with tracing.span(
                "apply command", fault=command.fault, kind="consumer", command=command.id, verb=command.verb
            ) as span:
                outcome = await self._carry_out(command, self.clock.now_ns())
                span.set_attribute("foliot.status", outcome.status)
                self.restart_cache.keep_answer(outcome)
                self.publish(outcome)
        finally:
            self._under_way.discard(command.id)

    async def _carry_out(self, command: Command, started_ns: int) -> Outcome:
        passes = await self.fence.passes(command.lease_revision)
        judgement = judge(
            command,
            self._object_to,
            node=self.node,
            policy=self.policy,
            now_ns=self.clock.now_ns(),
            synchronised=self.clock.bound_ns() >= 0,
            highest_lease=self.fence.highest,
        )
        if passes and command.node == self.node:
            self.fence.raise_to(command.lease_revision)
        if judgement.status != "act":
            log.info("command_not_done", id=command.id, status=judgement.status, reason=judgement.reason)
            return self._not_done(command, judgement.status, judgement.reason, started_ns)
        handler, order = self._handlers[command.verb], command.order()
        try:
            result = await handler.apply(order)
        except Exception as error:  # of whichever verb: who asked is told
            log.exception("handler_failed", verb=command.verb, id=command.id)
            reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
            return self._not_done(command, "failed", reason, started_ns)
        confirmed = await self._confirmed(handler, result, command)
        return outcome_of(
            result, confirmed, command=command.id, node=self.node, fault=command.fault, cause=command.cause,
            started_ns=started_ns,
        )  # fmt: skip

    def _not_done(self, command: Command, status: OutcomeStatus, reason: str, started_ns: int) -> Outcome:
        return Outcome(
            id=fitting(f"{command.id}/outcome/{self.node}"), command=command.id, verb=command.verb, node=self.node,
            status=status, reason=reason, started_ns=started_ns, away=command.away, back=command.back,
            fault=command.fault, cause=command.cause,
        )  # fmt: skip

    async def _confirmed(self, handler: ActionHandler, result: Result, command: Command) -> Confirmed:
        if result.status not in {"done", "already"}:
            return Confirmed()
        try:
            return await handler.confirm(result, command.fault)
        except Exception:  # it was done, and nobody has seen that it took effect
            log.exception("handler_failed", verb=command.verb, id=command.id)
            return Confirmed(expected=1)

    def _object_to(self, command: Command) -> str:
        """The objection of a verb's handler.

        An order that cannot be read gets one too: its sender would else ask again and again.
        """
        handler = self._handlers.get(command.verb)
        if handler is None:
            return f"the verb {command.verb} is not known here; known are {', '.join(sorted(self._handlers))}"
        try:
            order = command.order()
        except OrderError as error:
            return str(error)
        try:
            return handler.check(order, command)
        except Exception as error:  # of whichever verb: who asked is told
            log.exception("handler_failed", verb=command.verb, id=command.id)
            return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
