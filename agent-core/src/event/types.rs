//! Table of the event types that this version knows.

/// Calls the macro `$make` with each event type: its doc comment, its constant, its
/// [`EventPayload`](crate::event::body::EventPayload) variant with the payload type, and its name.
macro_rules! event_types {
    ($make:ident) => {
        $make! {
            /// Message of a person; an input, which a run will answer.
            USER_MESSAGE UserMessage(Message) "user.message",
            /// Person's request to stop the session's run or its waiting.
            USER_INTERRUPT UserInterrupt(Interrupt) "user.interrupt",
            /// Person's decision on a tool call or a question.
            USER_TOOL_CONFIRMATION UserToolConfirmation(ToolConfirmation) "user.tool_confirmation",
            /// Result delivered by a tool that ran outside.
            USER_CUSTOM_TOOL_RESULT UserCustomToolResult(ToolResult) "user.custom_tool_result",
            /// Outcome that a person wants the session to achieve; an input.
            USER_DEFINE_OUTCOME UserDefineOutcome(Message) "user.define_outcome",
            /// Message of the agent.
            AGENT_MESSAGE AgentMessage(Message) "agent.message",
            /// Reasoning of the agent, if it is stored.
            AGENT_THINKING AgentThinking(Message) "agent.thinking",
            /// Item of an answer that is no text, no reasoning and no tool call: a refusal, an image, a search that the
            /// provider ran.
            AGENT_PART AgentPart(AgentPart) "agent.part",
            /// End of an answer: its origin, and what the request was built on.
            AGENT_RESPONSE AgentResponse(AgentResponse) "agent.response",
            /// Tool call of the agent; committed before the tool runs.
            AGENT_TOOL_USE AgentToolUse(ToolUse) "agent.tool_use",
            /// Result of a tool call; exactly one for each call.
            AGENT_TOOL_RESULT AgentToolResult(ToolResult) "agent.tool_result",
            /// Agent's call of a tool that runs outside.
            AGENT_CUSTOM_TOOL_USE AgentCustomToolUse(ToolUse) "agent.custom_tool_use",
            /// Text of the system: a custom prompt, or injected text.
            SYSTEM_MESSAGE SystemMessage(SystemMessage) "system.message",
            /// Start of a span of work.
            SPAN_STARTED SpanStarted(SpanStarted) "span.started",
            /// End of a span of work.
            SPAN_COMPLETED SpanCompleted(SpanCompleted) "span.completed",
            /// Creation of the session; its first event.
            SESSION_CREATED SessionCreated(Box<Created>) "session.created",
            /// Change of state for a reason that no other event expresses.
            SESSION_STATUS_CHANGED SessionStatusChanged(Comment) "session.status_changed",
            /// Notice that the session became idle; written by hosts that want it in the log.
            SESSION_STATUS_IDLE SessionStatusIdle(Comment) "session.status_idle",
            /// Change of title, labels, metadata, references or resources.
            SESSION_UPDATED SessionUpdated(Patch) "session.updated",
            /// Version of one of the session's documents.
            SESSION_DOCUMENT_WRITTEN SessionDocumentWritten(DocumentWritten) "session.document_written",
            /// Usage of a run.
            SESSION_RUN_USAGE SessionRunUsage(RunUsage) "session.run_usage",
            /// Artifact that was made, and its location.
            SESSION_ARTIFACT_REGISTERED SessionArtifactRegistered(Artifact) "session.artifact_registered",
            /// Learning of an agent; on a hidden session.
            SESSION_LEARNING_ADDED SessionLearningAdded(Learning) "session.learning_added",
            /// Notice that a learning was included in a document; on a hidden session.
            SESSION_LEARNING_PROMOTED SessionLearningPromoted(LearningPromoted) "session.learning_promoted",
            /// Operation on a workspace, a device or a session, before or after it is done; in the audit.
            SESSION_OPERATION_AUDITED SessionOperationAudited(AuditedOperation) "session.operation_audited",
            /// Clearing of the visible history, which starts after this event.
            SESSION_HISTORY_CLEARED SessionHistoryCleared(Comment) "session.history_cleared",
            /// Compaction: from here on, the history that a model is given starts with a summary; the log is
            /// unchanged.
            SESSION_COMPACTED SessionCompacted(Compaction) "session.compacted",
            /// Scheduled timer.
            SESSION_TIMER_SCHEDULED SessionTimerScheduled(Timer) "session.timer_scheduled",
            /// Cancellation of a scheduled timer.
            SESSION_TIMER_CANCELLED SessionTimerCancelled(TimerCancelled) "session.timer_cancelled",
            /// Creation of a child session.
            SESSION_CHILD_CREATED SessionChildCreated(ChildCreated) "session.child_created",
            /// Notice that the parent of this session received its report.
            SESSION_REPORTED SessionReported(Reported) "session.reported",
            /// Report that a child session became idle or ended; carries its result.
            SESSION_CHILD_IDLE SessionChildIdle(ChildIdle) "session.child_idle",
        }
    };
}
pub(crate) use event_types;
