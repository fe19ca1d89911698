//! The proof of the suite: backends that are broken in one way each, and the clauses that catch them.

#![allow(clippy::panic, clippy::expect_used, reason = "a test's helpers")]

mod record;
mod store;

use agent_storage_conformance::{Clause, Needs, Settings, check, clauses};

use record::Column;
use store::{Broken, Fault};

/// How often a race is run until it meets the order in which its fault shows: a busy machine may not give it at once.
const TRIES: u64 = 10;

fn run(fault: Fault, path: &str) -> Result<(), String> {
    run_with(fault, path, 7)
}

fn run_with(fault: Fault, path: &str, seed: u64) -> Result<(), String> {
    let clause = clauses().into_iter().find(|clause| clause.path() == path);
    let clause = clause.unwrap_or_else(|| panic!("there is no clause {path}"));
    check(Broken(fault), &clause, Settings::new(200, seed))
}

/// Each fault is caught by each of these clauses; the same store without the fault passes them.
fn is_caught(fault: Fault, paths: &[&str]) {
    for path in paths {
        if let Err(report) = run(Fault::None, path) {
            panic!("{path} fails on a store that is not broken:\n{report}");
        }
        let report = (7..7 + TRIES).find_map(|seed| run_with(fault, path, seed).err()).expect(path);
        assert!(!report.contains("is left out"), "{report}");
        for part in ["clause    ", "steps", "expected  ", "seen      ", Settings::SEED, path] {
            assert!(report.contains(part), "the report lacks {part:?}:\n{report}");
        }
    }
}

macro_rules! caught {
    ($($test:ident: $fault:ident $(($column:ident))? by $($path:literal),+;)+) => {
        $(#[test] fn $test() {
            is_caught(Fault::$fault $((Column::$column))?, &[$($path),+]);
        })+

        /// The clauses that have been seen to fail.
        const SEEN_TO_FAIL: &[&str] = &[$($($path),+),+];
    };
}

caught! {
    a_lost_update: LostUpdate by
        "one_winner::one_commit_wins_per_expectation",
        "one_winner::a_stale_expectation_is_a_conflict_with_the_head";
    a_half_commit_that_is_visible: HalfCommitVisible by "atomic::a_commit_of_many_events_is_seen_whole";
    a_refused_commit_that_leaves_its_start: RefusedCommitLeavesItsStart by
        "atomic::a_commit_that_is_refused_at_its_last_step_leaves_nothing";
    a_dropped_commit_that_is_half_applied: DroppedCommitIsHalfApplied by
        "atomic::a_dropped_commit_is_whole_or_absent";
    a_dropped_commit_that_blocks_the_store: DroppedCommitBlocksTheStore by
        "atomic::a_dropped_commit_is_whole_or_absent",
        "atomic::a_dropped_creation_is_whole_or_absent";
    an_acknowledgement_before_anything_is_stored: AcknowledgedBeforeStored by
        "one_winner::what_one_handle_wrote_another_reads",
        "no_double::a_commit_sent_again_after_reopening_is_one";
    a_commit_id_that_is_ignored: CommitIdIgnored by
        "no_double::a_commit_sent_again_at_once_is_one",
        "no_double::a_commit_sent_eight_times_at_the_same_moment_is_one",
        "no_double::a_commit_sent_again_after_15_commits_is_one";
    a_replay_that_is_checked_after_the_fence: ReplayCheckedAfterTheFence by
        "no_double::a_commit_sent_again_after_a_take_over_is_answered";
    a_fence_that_is_ignored: FenceIgnored by
        "fenced::a_run_that_was_taken_over_writes_nothing_more",
        "fenced::a_late_write_and_a_take_over_have_an_order",
        "fenced::an_epoch_that_never_was_writes_nothing";
    an_answer_that_is_given_another_time: AnswersStampedAnew by
        "machine::an_answer_after_its_time_is_refused";
    an_ended_run_that_may_write: EndedRunMayWrite by "fenced::an_ended_run_writes_nothing_more";
    a_look_that_is_a_sign_of_life: LookingIsASignOfLife by
        "fenced::signs_of_life_are_seen_and_are_no_events";
    a_damaged_event_that_is_shown: DamagedEventShown by
        "nothing_hides::damage_is_found_and_nothing_else",
        "nothing_hides::a_damaged_fork_is_saved_with_what_it_shares";
    damage_that_is_taken_for_absence: CorruptAsAbsent by
        "nothing_hides::damaged_bindings_are_no_missing_bindings",
        "nothing_hides::damaged_bindings_are_found";
    a_damaged_event_that_is_skipped: DamagedEventSkipped by
        "nothing_hides::a_damaged_event_is_reported_and_the_rest_is_read",
        "nothing_hides::a_damaged_session_is_never_started_anew",
        "nothing_hides::what_can_be_read_of_a_damaged_session_is_saved";
    a_damaged_workspace_that_is_hidden: DamagedWorkspaceHidden by
        "nothing_hides::a_damaged_workspace_is_named_and_not_replaced",
        "nothing_hides::damaged_workspaces_are_found";
    an_index_that_is_taken_for_the_truth: IndexIsTheTruth by
        "nothing_hides::what_is_derived_is_rebuilt_to_the_same_answers";
    a_rebuild_that_empties_the_lists: RebuildEmptiesTheLists by
        "nothing_hides::a_rebuild_changes_no_answer";
    a_tombstone_that_is_forgotten: TombstoneForgotten by "nothing_hides::a_deleted_session_is_a_tombstone";
    a_purge_that_harms_a_child: PurgeHarmsAChild by
        "nothing_hides::a_purge_keeps_what_descendants_read",
        "lineage::a_purge_keeps_what_living_forks_read",
        "lineage::lineage_is_known_after_the_parent_is_deleted";
    a_tombstone_that_keeps_the_record: TombstoneKeepsTheRecord by "nothing_hides::a_tombstone_keeps_no_word";
    line_breaks_that_tear_the_log: RawLineBreaksTearTheLog by "content::json_over_several_lines_is_kept_compact";
    a_conflict_without_the_head: ConflictHidesTheHead by
        "one_winner::a_stale_expectation_is_a_conflict_with_the_head",
        "no_double::a_commit_sent_again_after_300_commits_is_one";
    a_refusal_that_is_in_doubt: RefusalsInDoubt by "outcomes::a_refused_write_says_that_it_did_not_happen";
    an_error_that_names_no_object: ErrorsNameNothing by
        "outcomes::errors_name_the_object_and_hide_what_was_said";
    an_error_that_quotes_what_was_said: ErrorsQuotePayloads by
        "outcomes::errors_name_the_object_and_hide_what_was_said";
    a_page_that_is_off_by_one: PageOffByOne by "bounded::any_page_size_gives_every_event_once";
    a_page_that_grows_too_large: PageTooLarge by "bounded::a_page_ends_before_it_grows_too_large";
    a_read_from_the_wrong_end: NewestIsOldest by
        "bounded::a_read_gives_the_range_that_was_asked_for",
        "bounded::a_long_session_is_written_and_read_at_its_end";
    newest_events_that_are_shown_late: NewestLags by
        "sequences::sequences_of_several_tasks_have_one_order";
    types_that_are_not_filtered: TypesIgnored by "bounded::events_are_filtered_by_type";
    a_wait_that_ends_early: WaitingEndsEarly by "bounded::waiting_ends_with_the_next_event";
    a_clearing_that_leaks: ClearLeaks by
        "content::the_system_prompt_and_the_metadata_outlive_clearing",
        "atomic::a_clearing_is_seen_whole";
    numbers_that_are_rewritten: NumbersRewritten by "content::numbers_of_any_size_are_not_rewritten";
    unknown_fields_that_are_dropped: UnknownFieldsDropped by "content::unknown_types_and_fields_are_kept";
    line_ends_that_are_rewritten: LineEndsRewritten by "content::any_text_comes_back_byte_for_byte";
    an_order_by_the_clock: OrderedByTheClock by
        "content::the_order_is_the_sequence_when_the_clock_steps_back";
    a_lost_update_among_random_steps: LostUpdate by "sequences::sessions_answer_as_the_reference_does";
    a_page_off_by_one_among_random_steps: PageOffByOne by
        "sequences::sessions_answer_as_the_reference_does";
    a_revision_ignored_among_random_steps: PutIgnoresTheRevision by
        "sequences::workspaces_and_bindings_answer_as_the_reference_does";
    a_cursor_that_skips_ties: CursorSkipsTies by "lists::pages_neither_skip_nor_repeat_where_times_tie";
    hidden_sessions_that_are_shown: HiddenShown by
        "lists::archived_and_deleted_sessions_are_hidden_unless_asked_for";
    totals_that_ignore_the_filter: TotalsOfEverything by "lists::filters_and_totals_agree";
    a_due_list_without_an_order: DueInAnyOrder by "lists::what_is_due_is_found_in_its_order";
    a_due_list_without_an_end: DueWithoutAnEnd by "lists::what_is_due_is_found_in_its_order";
    a_due_list_of_what_is_done: DueThoughDone by
        "lists::what_was_done_is_due_no_more",
        "lists::a_child_at_rest_is_due_until_its_parent_is_told";
    a_due_list_that_is_lost_on_reopening: DueLostOnReopening by
        "lists::what_is_due_is_found_after_reopening";
    labels_that_are_not_filtered: LabelsIgnored by
        "lists::filters_and_totals_agree",
        "lists::what_is_due_can_be_filtered";
    a_fork_that_sees_later_events: ForkSeesLaterEvents by "lineage::a_fork_never_sees_what_its_parent_does_later";
    a_list_that_shows_another_state: ListShowsAnotherState by "nothing_hides::what_is_sound_is_verified";
    a_fork_that_loses_its_parent: ForkLosesItsParent by "lineage::forks_and_children_are_listed_by_their_parent";
    a_tenant_that_leaks: TenantLeak by
        "tenants::equal_ids_are_different_things",
        "tenants::nothing_of_another_tenant_is_found",
        "tenants::what_one_tenant_deletes_the_other_keeps";
    a_put_that_ignores_the_revision: PutIgnoresTheRevision by
        "workspaces::a_put_of_an_old_revision_changes_nothing",
        "one_winner::one_put_wins_per_revision";
    a_touch_that_steps_back: TouchStepsBack by "workspaces::a_touch_keeps_the_later_time_and_all_else";
    a_configuration_that_outlives_its_workspace: DeletedConfigurationStays by
        "workspaces::a_deleted_workspace_is_gone_and_its_id_used_up";
    a_configuration_that_is_raced_for: ConfigurationRaces by "one_winner::one_configuration_wins_per_hash";
    a_bind_that_is_raced_for: BindRace by "one_winner::first_contacts_of_one_device_agree";
    an_unbinding_that_erases_a_newer_bind: UnbindErasesANewerBind by
        "bindings::unbinding_a_workspace_never_erases_a_newer_bind";
    devices_that_are_taken_for_each_other: DevicesFolded by "bindings::hostile_device_ids_are_kept_apart";
    a_bind_that_is_lost_on_reopening: BindLostOnReopening by
        "bindings::the_last_bind_wins",
        "durable::all_kinds_of_objects_are_there_after_reopening";
    an_old_commit_that_is_applied_again: OldCommitIdsForgotten by
        "no_double::a_commit_sent_again_after_16_commits_is_one",
        "no_double::a_commit_sent_again_after_17_commits_is_one",
        "no_double::a_commit_sent_again_after_300_commits_is_one";
    a_recent_commit_that_is_applied_again: CommitIdIgnored by
        "no_double::a_commit_sent_again_after_1_commit_is_one",
        "no_double::a_commit_sent_again_after_the_deletion_is_answered",
        "no_double::a_creation_sent_again_is_one";
    a_refusal_that_is_remembered: RefusedIsRemembered by
        "no_double::what_was_refused_and_is_sent_again_is_not_taken_for_done";
    a_commit_in_two: DroppedCommitIsHalfApplied by
        "atomic::a_message_and_its_run_happen_together",
        "atomic::an_answer_and_the_end_of_its_run_happen_together",
        "atomic::a_full_write_replaces_what_is_visible_or_is_refused",
        "no_double::a_retry_makes_the_same_events";
    an_agent_that_anybody_speaks_as: AnybodySpeaksAsTheAgent by
        "fenced::only_the_run_writes_as_the_agent";
    a_run_that_keeps_inputs_out: InputsRefusedDuringARun by
        "fenced::inputs_and_readers_need_no_lease",
        "machine::an_interrupt_asks_a_run_to_end",
        "machine::what_was_handled_is_never_handed_out_again";
    a_fence_that_is_ignored_after_force: FenceIgnored by
        "fenced::a_forced_end_fences_the_run",
        "fenced::one_prepares_at_a_time",
        "outcomes::checks_come_in_the_stated_order";
    a_decision_on_an_old_record: DecidedOnAnOldRecord by
        "one_winner::one_creator_of_a_session",
        "one_winner::one_run_begins",
        "one_winner::one_answer_resumes",
        "sequences::sequences_of_several_tasks_have_one_order";
    a_commit_in_two_among_several_tasks: DroppedCommitIsHalfApplied by
        "sequences::sequences_of_several_tasks_have_one_order";
    an_acknowledgement_of_an_append_too_soon: AcknowledgedBeforeStored by
        "one_winner::appends_from_many_handles_all_land";
    a_commit_that_adds_events: CommitsNoteThemselves by "content::nothing_is_stored_that_was_not_said";
    a_child_that_is_listed_late: ChildrenListedLate by
        "lineage::a_child_is_made_before_its_parent_is_deleted_or_not_at_all",
        "lineage::a_purge_takes_nothing_from_a_fork_at_the_same_moment";
    a_store_that_is_bound_to_its_runtime: BoundToItsRuntime by
        "one_winner::a_handle_serves_any_task_on_any_runtime";
    stores_that_only_work_together: StoresTiedTogether by
        "one_winner::stores_of_several_backends_are_wired_as_one";
    a_holder_that_is_not_named: BusyHidesTheHolder by
        "fenced::a_second_run_is_told_who_holds_the_session",
        "one_winner::one_run_begins";
    a_transition_that_is_not_named: TransitionsUnnamed by
        "outcomes::a_refused_transition_names_state_and_trigger",
        "machine::every_trigger_in_every_state_does_what_the_table_says",
        "machine::a_session_that_is_over_takes_nothing_more";
    a_limit_that_is_not_named: LimitsUnnamed by
        "outcomes::what_a_record_holds_is_limited",
        "outcomes::what_a_commit_holds_is_limited",
        "workspaces::limits_are_refused_before_anything_is_written";
    a_refusal_that_leaves_something: RefusedCommitLeavesItsStart by
        "outcomes::a_commit_at_fault_is_refused_before_anything_is_written";
    an_interrupt_that_leaves_inputs: InterruptLeavesInputs by "machine::an_interrupt_clears_what_waits";
    a_lease_of_the_whole_workspace: LeaseOfTheWorkspace by "lineage::sessions_do_not_touch_each_other";
    labels_that_are_lost_on_reopening: ReopenedWithoutLabels by
        "durable::every_step_of_a_conversation_is_there_after_reopening";
    a_lost_question: Loses(Action) by
        "machine::only_the_matching_answer_resumes_and_only_once",
        "machine::a_question_outlives_a_pause_and_expires_when_told";
    a_lost_count_of_attempts: Loses(Attempts) by "machine::a_run_that_failed_leaves_its_input_open";
    lost_counts: Loses(Counts) by
        "bounded::messages_are_counted_without_reading_them",
        "atomic::a_creation_is_seen_whole";
    a_lost_failure: Loses(Failure) by "machine::a_failure_is_kept_until_it_is_recovered_from";
    a_lost_mark_of_what_was_handled: Loses(Handled) by
        "machine::what_was_handled_is_never_handed_out_again",
        "durable::a_suspended_session_goes_on_where_it_was";
    lost_labels: Loses(Labels) by
        "content::what_is_said_of_a_session_is_kept",
        "content::a_change_touches_only_what_it_names";
    a_lost_lineage: Loses(Lineage) by
        "lineage::a_fork_has_the_history_and_goes_its_own_way",
        "lineage::a_fork_at_a_point_has_the_history_up_to_there",
        "lineage::a_fork_of_a_long_session_copies_nothing",
        "lineage::a_chain_of_forks_reads_as_one_history",
        "lineage::forks_while_the_parent_grows_are_whole";
    lost_open_calls: Loses(OpenCalls) by
        "machine::open_calls_and_spans_get_one_end_each",
        "lineage::no_fork_cuts_a_tool_call_from_its_result";
    a_lost_origin: Loses(Origin) by "lineage::a_child_is_linked_when_it_is_made_and_reports";
    a_lost_count_of_inputs: Loses(Pending) by
        "machine::inputs_before_it_is_ready_are_kept_and_served",
        "lists::a_list_shows_what_waits_and_why";
    a_lost_reason: Loses(Reason) by
        "machine::a_record_is_the_fold_of_its_log",
        "content::a_record_says_where_a_session_came_from";
    a_lost_request: Loses(Requested) by "machine::an_interrupt_asks_a_run_to_end";
    lost_resources: Loses(Resources) by "content::resources_are_replaced_as_a_whole";
    a_lost_title: Loses(Title) by "content::a_title_of_a_person_is_not_replaced_by_a_made_up_one";
    absence_that_is_taken_for_emptiness: AbsentIsEmpty by
        "nothing_hides::a_session_that_never_was_is_not_found";
    a_tombstone_that_is_no_parent: TombstoneForgotten by
        "lineage::nothing_is_made_from_a_deleted_session";
    a_dropped_read_that_blocks: DroppedReadBlocks by "atomic::dropped_reads_leave_the_store_usable";
    a_range_with_its_edge: AfterIsInclusive by
        "bounded::a_read_gives_the_range_that_was_asked_for",
        "bounded::following_gives_every_event_once";
    a_page_off_by_one_while_the_session_grows: PageOffByOne by
        "bounded::pages_hold_while_the_session_grows";
    an_author_who_is_forgotten: ActorForgotten by "content::who_said_it_is_kept";
    a_run_that_is_forgotten: RunForgotten by "fenced::a_run_writes_while_its_lease_lives";
    times_that_are_lost: EarlyTimesLost by "content::times_at_both_ends_are_kept";
    long_texts_that_are_cut: LongTextsCut by "content::ten_mebibytes_come_back_byte_for_byte";
    a_type_that_is_not_kept: ThoughtsEmptied by "content::every_known_type_round_trips";
    a_list_that_lags: ListLags by
        "atomic::the_list_is_as_new_as_the_log",
        "lists::states_are_shown_as_they_are";
    a_workspace_that_is_not_filtered: WorkspaceIgnored by "lists::a_workspace_has_many_sessions";
    a_list_in_reverse: ListReversed by
        "lists::the_last_active_comes_first",
        "workspaces::workspaces_are_listed_by_last_access";
    pages_that_drop_one: LaterPagesDropOne by
        "lists::pages_lose_nothing_while_sessions_are_used",
        "lists::pages_of_what_is_due_neither_skip_nor_repeat",
        "workspaces::pages_neither_skip_nor_repeat_where_times_tie",
        "workspaces::pages_lose_nothing_while_workspaces_are_used";
    a_session_for_a_limit_of_zero: OneSessionForALimitOfZero by
        "lists::any_page_size_is_served",
        "lists::a_limit_of_zero_gives_nothing";
    a_workspace_for_a_limit_of_zero: OneWorkspaceForALimitOfZero by "lists::a_limit_of_zero_gives_nothing";
    a_binding_for_a_limit_of_zero: OneBindingForALimitOfZero by "lists::a_limit_of_zero_gives_nothing";
    an_event_for_a_limit_of_zero: OneEventForALimitOfZero by "lists::a_limit_of_zero_gives_nothing";
    a_moved_store_that_is_written: MovedIsWritten by "durable::a_moved_store_acknowledges_nothing";
    a_moved_store_that_is_read: MovedIsRead by "durable::a_moved_store_acknowledges_nothing";
    a_moved_store_that_is_said_to_be_empty: MovedIsAbsent by "durable::a_moved_store_acknowledges_nothing";
    a_damaged_session_that_stays: DamagedSessionStays by "nothing_hides::a_damaged_session_can_be_deleted";
    a_rebuild_that_skips_without_a_word: RebuildSkipsSilently by
        "nothing_hides::a_rebuild_names_what_it_leaves_out";
    a_purge_at_any_head: PurgeAtAnyHead by
        "nothing_hides::only_a_deleted_session_is_purged_and_only_as_it_was_decided";
    tenants_that_are_hidden: TenantsHidden by "tenants::tenants_are_listed_once_they_hold_something";
    a_tenant_that_leaks_in_other_ways: TenantLeak by
        "tenants::a_lease_of_one_tenant_binds_no_other",
        "tenants::cursors_of_one_tenant_show_nothing_of_another",
        "tenants::nothing_is_forked_across_tenants";
    a_dropped_put_that_is_half_applied: DroppedPutIsHalfApplied by
        "atomic::a_dropped_write_of_a_workspace_is_whole_or_absent";
    a_creation_that_is_raced_for: WorkspaceCreationRaces by "one_winner::one_creator_of_a_workspace";
    a_description_that_is_lost: DescriptionLost by "workspaces::what_was_put_is_loaded";
    a_creation_that_replaces: PutReplaces by "workspaces::a_second_creation_changes_nothing";
    a_put_that_creates: PutCreates by "workspaces::nothing_is_put_where_nothing_is";
    a_default_that_is_refused: DefaultRefused by "workspaces::the_default_workspace_is_one_like_others";
    an_empty_text_that_is_none: EmptyConfigurationIsNone by "workspaces::the_configuration_is_text_or_none";
    a_hash_that_is_ignored: ConfigurationHashIgnored by
        "workspaces::a_configuration_that_was_not_read_is_not_replaced";
    fields_of_a_workspace_that_are_dropped: WorkspaceFieldsDropped by
        "workspaces::settings_and_unknown_fields_are_kept";
    a_touch_that_steps_back_among_loads: TouchStepsBack by
        "workspaces::touches_and_loads_do_not_disturb_each_other";
    a_dropped_bind_that_is_half_applied: DroppedBindIsHalfApplied by
        "atomic::a_dropped_bind_is_whole_or_absent";
    a_rebind_that_is_raced_for: RebindRaces by "one_winner::one_rebind_wins_per_expectation";
    a_device_that_is_bound_unasked: UnknownDeviceIsDefault by
        "bindings::an_unknown_device_is_bound_to_none";
    an_expectation_that_is_ignored: BindExpectIgnored by
        "bindings::a_bind_that_expects_another_changes_nothing";
    a_first_contact_that_moves: FirstContactMoves by "bindings::a_first_contact_never_moves_a_binding";
    an_unbinding_that_says_too_much: UnbindingSaysTrue by
        "bindings::unbinding_says_whether_it_was_bound";
    bindings_that_are_rewritten: BindingsRewrittenWhole by
        "bindings::binds_of_many_devices_never_lose_each_other";
    an_unbinding_that_leaves_one: UnbindingLeavesOne by
        "bindings::all_devices_of_a_workspace_are_unbound_and_no_other";
    devices_that_are_folded_in_lists: DevicesFolded by
        "bindings::bindings_are_listed_by_device_and_by_workspace";
    a_cursor_of_another_query: LabelsIgnored by "bindings::cursors_of_other_queries_are_refused";
}

/// One call puts a backend to a clause. The store of this test is broken by its faults alone: without one it passes every clause that it can be asked.
#[test]
fn without_a_fault_every_clause_passes() {
    for clause in clauses() {
        if let Err(report) = check(Broken(Fault::None), &clause, Settings::new(10, 7)) {
            assert!(report.contains("is left out"), "{report}");
        }
    }
}

/// Each clause has a name of its own, and each contract has clauses.
#[test]
fn clauses_are_told_apart_by_their_names() {
    let mut paths: Vec<_> = clauses().iter().map(Clause::path).collect();
    let count = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), count);
    for number in 1..=8 {
        assert!(clauses().iter().any(|clause| clause.contract.number() == Some(number)), "contract {number}");
    }
}

/// The clauses that no fault of a store in this process can make fail.
const NEVER_SEEN_TO_FAIL: &[(&str, &str)] = &[(
    "bindings::bad_device_ids_never_reach_a_store",
    "the type of device ids refuses them; the clause shows a backend's author that nothing is left to do",
)];

/// A clause that nothing makes fail may check nothing: each but a few is caught by a fault above, and where it takes
/// several processes by one in `tests/processes.rs`.
#[test]
fn every_clause_was_seen_to_fail() {
    let excepted = |path: &str| NEVER_SEEN_TO_FAIL.iter().any(|(never, _)| *never == path);
    for clause in clauses() {
        let path = clause.path();
        let elsewhere =
            matches!(clause.needs, Needs::Processes | Needs::Crash | Needs::PowerLoss | Needs::Faults);
        let seen = SEEN_TO_FAIL.contains(&&*path);
        assert!(seen != (elsewhere || excepted(&path)), "{path}: seen to fail here: {seen}");
    }
    for (path, why) in NEVER_SEEN_TO_FAIL {
        assert!(clauses().iter().any(|clause| clause.path() == *path), "there is no clause {path} ({why})");
    }
}
