//! The table of the event types that this version knows.

/// Calls the macro `$make` with each type: what it says, its constant, its [`Body`](crate::event::body::Body) with the payload, its name.
macro_rules! event_types {
    ($make:ident) => {
        $make! {
            /// A person's message; an input, which a run will answer.
            USER_MESSAGE UserMessage(Message) "user.message",
            /// A person asks that whatever runs or waits stops.
            USER_INTERRUPT UserInterrupt(Interrupt) "user.interrupt",
            /// A person's decision on a tool call or a question.
            USER_TOOL_CONFIRMATION UserToolConfirmation(ToolConfirmation) "user.tool_confirmation",
            /// What a tool that ran outside delivers.
            USER_CUSTOM_TOOL_RESULT UserCustomToolResult(ToolResult) "user.custom_tool_result",
            /// A person states what the session is to achieve; an input.
            USER_DEFINE_OUTCOME UserDefineOutcome(Message) "user.define_outcome",
            /// The agent's text.
            AGENT_MESSAGE AgentMessage(Message) "agent.message",
            /// The agent's reasoning, where it is kept.
            AGENT_THINKING AgentThinking(Message) "agent.thinking",
            /// The agent calls a tool; committed before the tool runs.
            AGENT_TOOL_USE AgentToolUse(ToolUse) "agent.tool_use",
            /// What the tool gave; exactly one for each call.
            AGENT_TOOL_RESULT AgentToolResult(ToolResult) "agent.tool_result",
            /// The agent calls a tool that runs outside.
            AGENT_CUSTOM_TOOL_USE AgentCustomToolUse(ToolUse) "agent.custom_tool_use",
            /// Text of the system: a custom prompt, or something injected.
            SYSTEM_MESSAGE SystemMessage(SystemMessage) "system.message",
            /// A piece of work begins.
            SPAN_STARTED SpanStarted(SpanStarted) "span.started",
            /// A piece of work ends.
            SPAN_COMPLETED SpanCompleted(SpanCompleted) "span.completed",
            /// The session comes to be; its first event.
            SESSION_CREATED SessionCreated(Box<Created>) "session.created",
            /// The state changed for a reason that no other event explains.
            SESSION_STATUS_CHANGED SessionStatusChanged(Note) "session.status_changed",
            /// The session came to rest; written by hosts that want it said.
            SESSION_STATUS_IDLE SessionStatusIdle(Note) "session.status_idle",
            /// Title, labels, metadata, references or resources changed.
            SESSION_UPDATED SessionUpdated(Patch) "session.updated",
            /// A version of one of the session's documents.
            SESSION_DOCUMENT_WRITTEN SessionDocumentWritten(DocumentWritten) "session.document_written",
            /// What a run used.
            SESSION_RUN_USAGE SessionRunUsage(RunUsage) "session.run_usage",
            /// Something was made, and where it is.
            SESSION_ARTIFACT_REGISTERED SessionArtifactRegistered(Artifact) "session.artifact_registered",
            /// An agent found something out; on a shelf.
            SESSION_LEARNING_ADDED SessionLearningAdded(Learning) "session.learning_added",
            /// A learning was taken into a document; on a shelf.
            SESSION_LEARNING_PROMOTED SessionLearningPromoted(LearningPromoted) "session.learning_promoted",
            /// Something is about to be done to a workspace, a device or a session, or was; in the audit.
            SESSION_OPERATION_NOTED SessionOperationNoted(OperationNoted) "session.operation_noted",
            /// The visible history starts anew after this.
            SESSION_HISTORY_CLEARED SessionHistoryCleared(Note) "session.history_cleared",
            /// What a model is given starts with a summary from here on; the log stays as it is.
            SESSION_COMPACTED SessionCompacted(Compaction) "session.compacted",
            /// A wake was scheduled.
            SESSION_WAKE_SCHEDULED SessionWakeScheduled(Wake) "session.wake_scheduled",
            /// A wake is wanted no more.
            SESSION_WAKE_CANCELLED SessionWakeCancelled(WakeCancelled) "session.wake_cancelled",
            /// A child session was made.
            SESSION_CHILD_CREATED SessionChildCreated(ChildCreated) "session.child_created",
            /// The parent of this session was told what it came to.
            SESSION_REPORTED SessionReported(Reported) "session.reported",
            /// A child session came to rest or ended; carries its result.
            SESSION_CHILD_IDLE SessionChildIdle(ChildIdle) "session.child_idle",
        }
    };
}
pub(crate) use event_types;
