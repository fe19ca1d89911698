//! The proof of the suite: backends that are broken in one way each, and the clauses that catch them.

#![allow(clippy::panic, clippy::expect_used, reason = "a test's helpers")]

mod blobs;
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
        if let Err(report) = run(fault.control(), path) {
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
    lost_update_is_caught: LostUpdate by
        "one_winner::one_commit_wins_per_precondition",
        "one_winner::stale_precondition_is_a_conflict";
    visible_half_commit_is_caught: HalfCommitVisible by "atomic::a_commit_of_many_events_is_seen_whole";
    partly_applied_refused_commit_is_caught: RefusedCommitLeavesItsStart by
        "atomic::commit_refused_at_its_last_step_writes_nothing";
    half_applied_dropped_commit_is_caught: DroppedCommitIsHalfApplied by
        "atomic::a_dropped_commit_is_whole_or_absent";
    blocking_dropped_commit_is_caught: DroppedCommitBlocksTheStore by
        "atomic::a_dropped_commit_is_whole_or_absent",
        "atomic::a_dropped_creation_is_whole_or_absent";
    early_acknowledgement_is_caught: AcknowledgedBeforeStored by
        "one_winner::acknowledged_write_is_visible_to_every_handle",
        "no_double::commit_resent_after_reopening_is_applied_once";
    ignored_commit_id_is_caught: CommitIdIgnored by
        "no_double::commit_resent_at_once_is_applied_once",
        "no_double::commit_sent_by_eight_tasks_is_applied_once",
        "no_double::commit_resent_after_15_commits_is_applied_once";
    replay_checked_after_the_fence_is_caught: ReplayCheckedAfterTheFence by
        "no_double::commit_resent_after_takeover_is_answered";
    ignored_fence_is_caught: FenceIgnored by
        "fenced::replaced_run_writes_nothing_more",
        "fenced::late_write_precedes_the_takeover_or_is_fenced",
        "fenced::epoch_without_a_lease_writes_nothing";
    restamped_answer_is_caught: AnswersStampedAgain by
        "machine::answer_after_expiry_is_refused";
    write_of_an_ended_run_is_caught: EndedRunMayWrite by "fenced::an_ended_run_writes_nothing_more";
    status_read_as_heartbeat_is_caught: StatusReadsAreHeartbeats by
        "fenced::heartbeats_are_visible_and_are_not_events";
    shown_damaged_event_is_caught: DamagedEventShown by
        "nothing_hides::verify_finds_only_the_damaged_event",
        "nothing_hides::salvaged_fork_includes_its_shared_history";
    damage_reported_as_absence_is_caught: CorruptAsAbsent by
        "nothing_hides::damaged_bindings_are_not_treated_as_absent",
        "nothing_hides::verify_finds_damaged_bindings";
    skipped_damaged_event_is_caught: DamagedEventSkipped by
        "nothing_hides::a_damaged_event_is_reported_and_the_rest_is_read",
        "nothing_hides::damaged_session_is_never_recreated",
        "nothing_hides::salvage_copies_all_readable_events";
    hidden_damaged_workspace_is_caught: DamagedWorkspaceHidden by
        "nothing_hides::damaged_workspace_is_reported_and_not_replaced",
        "nothing_hides::verify_finds_damaged_workspaces";
    index_trusted_over_the_log_is_caught: IndexIsTheTruth by
        "nothing_hides::rebuilt_derived_data_gives_the_same_answers";
    rebuild_emptying_the_lists_is_caught: RebuildEmptiesTheLists by
        "nothing_hides::a_rebuild_changes_no_answer";
    forgotten_tombstone_is_caught: TombstoneForgotten by "nothing_hides::a_deleted_session_is_a_tombstone";
    purge_harming_a_child_is_caught: PurgeHarmsAChild by
        "nothing_hides::purge_keeps_events_that_descendants_read",
        "lineage::purge_keeps_events_that_live_forks_read",
        "lineage::lineage_is_known_after_the_parent_is_deleted";
    tombstone_keeping_the_record_is_caught: TombstoneKeepsTheRecord by "nothing_hides::purged_tombstone_keeps_no_text";
    raw_line_breaks_in_the_log_are_caught: RawLineBreaksTearTheLog by "content::multi_line_json_is_stored_compact";
    conflict_without_the_head_is_caught: ConflictHidesTheHead by
        "one_winner::stale_precondition_is_a_conflict",
        "no_double::commit_resent_after_300_commits_is_applied_once";
    refusal_with_unknown_outcome_is_caught: RefusalsInDoubt by "outcomes::refused_write_reports_not_applied";
    error_without_its_object_is_caught: ErrorsNameNothing by
        "outcomes::errors_name_the_object_but_no_content";
    error_quoting_content_is_caught: ErrorsQuotePayloads by
        "outcomes::errors_name_the_object_but_no_content";
    off_by_one_page_is_caught: PageOffByOne by
        "bounded::any_page_size_gives_every_event_once";
    oversized_page_is_caught: PageTooLarge by "bounded::page_ends_before_its_byte_limit";
    read_from_the_wrong_end_is_caught: NewestIsOldest by
        "search::a_search_that_stops_goes_on_where_it_was",
        "bounded::read_returns_the_requested_range",
        "bounded::long_session_appends_and_reads_its_last_events";
    late_newest_events_are_caught: NewestLags by
        "sequences::concurrent_commits_have_a_serial_order";
    ignored_type_filter_is_caught: TypesIgnored by "bounded::events_are_filtered_by_type";
    early_ending_wait_is_caught: WaitingEndsEarly by "bounded::waiting_ends_with_the_next_event";
    leaking_clear_is_caught: ClearLeaks by
        "content::system_prompt_and_metadata_survive_a_clear",
        "atomic::a_clearing_is_seen_whole";
    rewritten_numbers_are_caught: NumbersRewritten by "content::numbers_of_any_size_are_not_rewritten";
    dropped_unknown_fields_are_caught: UnknownFieldsDropped by "content::unknown_types_and_fields_are_kept";
    rewritten_line_ends_are_caught: LineEndsRewritten by "content::any_text_comes_back_byte_for_byte";
    ordering_by_the_clock_is_caught: OrderedByTheClock by
        "content::order_follows_sequence_if_the_clock_steps_back";
    lost_update_in_random_steps_is_caught: LostUpdate by "sequences::sessions_match_the_reference";
    off_by_one_page_in_random_steps_is_caught: PageOffByOne by
        "sequences::sessions_match_the_reference";
    ignored_revision_in_random_steps_is_caught: PutIgnoresTheRevision by
        "sequences::workspaces_and_bindings_match_the_reference";
    cursor_skipping_ties_is_caught: CursorSkipsTies by "lists::pages_neither_skip_nor_repeat_if_times_tie";
    listed_hidden_sessions_are_caught: HiddenShown by
        "lists::archived_and_deleted_are_hidden_by_default";
    totals_ignoring_the_filter_are_caught: TotalsOfEverything by "lists::filters_and_totals_agree";
    unordered_due_list_is_caught: DueInAnyOrder by "lists::due_sessions_are_listed_in_due_order";
    unbounded_due_list_is_caught: DueWithoutAnEnd by "lists::due_sessions_are_listed_in_due_order";
    completed_work_in_due_list_is_caught: DueThoughDone by
        "lists::completed_work_is_no_longer_due",
        "lists::finished_child_is_due_until_reported";
    due_list_lost_on_reopening_is_caught: DueLostOnReopening by
        "lists::due_sessions_are_found_after_reopening";
    ignored_label_filter_is_caught: LabelsIgnored by
        "lists::filters_and_totals_agree",
        "lists::due_sessions_can_be_filtered";
    fork_seeing_later_events_is_caught: ForkSeesLaterEvents by "lineage::fork_never_sees_later_events_of_its_parent";
    list_showing_another_state_is_caught: ListShowsAnotherState by "nothing_hides::verify_finds_no_damage_in_a_sound_store";
    fork_losing_its_parent_is_caught: ForkLosesItsParent by "lineage::forks_and_children_are_listed_by_their_parent";
    an_opened_tenant_that_is_listed: OpenedTenantsListed by
        "tenants::a_tenant_that_was_only_opened_is_not_listed";
    a_busy_tenant_that_is_left_out: BusyTenantLeftOut by "tenants::tenants_with_work_are_busy";
    a_deleted_tenant_that_keeps_something: DeletedTenantKeepsBindings by
        "tenants::a_deleted_tenant_is_empty_and_usable_again";
    a_pending_rewrite_that_is_not_reported: PendingRewriteUnreported by
        "tenants::a_pending_rewrite_is_reported_until_it_is_done";
    a_deletion_that_heeds_no_run: RunningTenantDeleted by
        "tenants::a_tenant_with_a_live_run_is_not_deleted";
    a_deletion_that_runs_on: DeletionRunsOn by
        "tenants::writers_during_a_deletion_leave_nothing_torn";
    a_dropped_deletion_that_blocks: DroppedDeletionBlocks by
        "tenants::a_dropped_deletion_is_finished_by_the_next";
    tenant_leak_is_caught: TenantLeak by
        "search::searches_show_what_the_handle_shows",
        "tenants::equal_ids_are_separate_per_tenant",
        "tenants::ids_of_another_tenant_are_not_found",
        "tenants::deletion_leaves_other_tenants_unchanged";
    put_ignoring_the_revision_is_caught: PutIgnoresTheRevision by
        "workspaces::a_put_of_an_old_revision_changes_nothing",
        "one_winner::one_put_wins_per_revision";
    touch_stepping_back_is_caught: TouchStepsBack by "workspaces::touch_changes_only_the_access_time";
    configuration_of_a_deleted_workspace_is_caught: DeletedConfigurationStays by
        "workspaces::deleted_workspace_id_is_never_reused";
    racy_configuration_change_is_caught: ConfigurationRaces by "one_winner::one_configuration_wins_per_hash";
    racy_bind_is_caught: BindRace by "one_winner::first_contacts_of_one_device_agree";
    unbind_erasing_a_newer_bind_is_caught: UnbindErasesANewerBind by
        "bindings::unbinding_a_workspace_never_erases_a_newer_bind";
    case_folded_devices_are_caught: DevicesFolded by "bindings::hostile_device_ids_are_kept_apart";
    bind_lost_on_reopening_is_caught: BindLostOnReopening by
        "bindings::the_last_bind_wins",
        "durable::all_kinds_of_objects_survive_reopening";
    reapplied_old_commit_is_caught: OldCommitIdsForgotten by
        "no_double::commit_resent_after_16_commits_is_applied_once",
        "no_double::commit_resent_after_17_commits_is_applied_once",
        "no_double::commit_resent_after_300_commits_is_applied_once";
    reapplied_recent_commit_is_caught: CommitIdIgnored by
        "no_double::commit_resent_after_1_commit_is_applied_once",
        "no_double::commit_resent_after_deletion_is_answered",
        "no_double::creation_resent_is_applied_once";
    remembered_refusal_is_caught: RefusedIsRemembered by
        "no_double::refused_commit_is_not_remembered_as_applied";
    split_commit_is_caught: DroppedCommitIsHalfApplied by
        "atomic::message_and_run_start_are_one_commit",
        "atomic::answer_and_run_end_are_one_commit",
        "atomic::full_write_replaces_the_history_or_is_refused",
        "no_double::retry_produces_the_same_events";
    unfenced_agent_message_is_caught: AnybodySpeaksAsTheAgent by
        "fenced::only_the_run_writes_as_the_agent";
    refused_input_during_a_run_is_caught: InputsRefusedDuringARun by
        "fenced::inputs_and_readers_need_no_lease",
        "machine::an_interrupt_asks_a_run_to_end",
        "machine::completed_inputs_are_never_claimed_again";
    ignored_fence_after_forced_end_is_caught: FenceIgnored by
        "fenced::a_fence_leaves_the_epochs_of_before_behind",
        "fenced::a_forced_end_fences_the_run",
        "fenced::only_one_holder_prepares_at_a_time",
        "outcomes::checks_come_in_the_stated_order";
    decision_on_a_stale_record_is_caught: DecidedOnAnOldRecord by
        "one_winner::one_creation_wins_per_session_id",
        "one_winner::one_of_eight_runs_begins",
        "one_winner::one_of_eight_answers_resumes",
        "sequences::concurrent_commits_have_a_serial_order";
    split_commit_in_concurrent_tasks_is_caught: DroppedCommitIsHalfApplied by
        "sequences::concurrent_commits_have_a_serial_order";
    early_append_acknowledgement_is_caught: AcknowledgedBeforeStored by
        "one_winner::appends_from_many_handles_all_land";
    commit_adding_events_is_caught: CommitsNoteThemselves by "content::only_committed_data_is_stored";
    late_child_listing_is_caught: ChildrenListedLate by
        "lineage::child_precedes_parent_deletion_or_is_refused",
        "lineage::purge_takes_nothing_from_a_concurrent_fork";
    store_bound_to_its_runtime_is_caught: BoundToItsRuntime by
        "one_winner::a_handle_serves_any_task_on_any_runtime";
    stores_tied_to_each_other_are_caught: StoresTiedTogether by
        "one_winner::stores_of_several_backends_work_as_one";
    unnamed_holder_is_caught: BusyHidesTheHolder by
        "fenced::second_run_is_refused_with_the_holders_name",
        "one_winner::one_of_eight_runs_begins";
    unnamed_transition_is_caught: TransitionsUnnamed by
        "outcomes::a_refused_transition_names_state_and_trigger",
        "machine::every_trigger_follows_the_transition_table",
        "machine::ended_session_accepts_nothing_more";
    unnamed_limit_is_caught: LimitsUnnamed by
        "outcomes::record_contents_are_limited",
        "outcomes::commit_contents_are_limited",
        "workspaces::oversized_fields_are_refused_before_any_write";
    refusal_leaving_data_is_caught: RefusedCommitLeavesItsStart by
        "outcomes::invalid_commit_is_refused_before_any_write";
    interrupt_leaving_inputs_is_caught: InterruptLeavesInputs by "machine::interrupt_clears_pending_work";
    workspace_wide_lease_is_caught: LeaseOfTheWorkspace by "lineage::sessions_do_not_affect_each_other";
    labels_lost_on_reopening_are_caught: ReopenedWithoutLabels by
        "durable::every_conversation_step_survives_reopening";
    lost_question_is_caught: Loses(Action) by
        "machine::only_the_matching_answer_resumes_and_only_once",
        "machine::question_survives_suspension_until_its_timeout";
    lost_attempt_count_is_caught: Loses(Attempts) by "machine::failed_run_leaves_its_input_open";
    lost_counts_are_caught: Loses(Counts) by
        "bounded::messages_are_counted_without_reading_them",
        "atomic::a_creation_is_seen_whole";
    lost_failure_is_caught: Loses(Failure) by "machine::failure_is_kept_until_recovery";
    lost_inputs_done_mark_is_caught: Loses(Handled) by
        "machine::completed_inputs_are_never_claimed_again",
        "durable::suspended_session_resumes_where_it_stopped";
    lost_labels_are_caught: Loses(Labels) by
        "content::session_attributes_are_returned_as_set",
        "content::update_changes_only_the_named_attributes";
    lost_lineage_is_caught: Loses(Lineage) by
        "lineage::fork_has_the_history_and_stays_independent",
        "lineage::a_fork_at_a_point_has_the_history_up_to_there",
        "lineage::a_fork_of_a_long_session_copies_nothing",
        "lineage::a_chain_of_forks_reads_as_one_history",
        "lineage::forks_are_complete_while_the_parent_grows";
    lost_owner_is_caught: Loses(Owner) by
        "search::an_index_shows_what_its_handle_shows",
        "owners::owner_is_that_of_the_handle_and_is_kept",
        "owners::sessions_of_another_owner_are_not_found",
        "owners::creations_do_not_tell_who_has_an_id",
        "owners::forks_and_children_have_the_owner_of_their_parent",
        "owners::nothing_is_created_for_another_owner",
        "owners::keys_of_two_owners_name_two_sessions",
        "owners::work_on_the_whole_tenant_is_denied",
        "owners::an_owner_is_counted_and_erased",
        "owners::forged_sessions_are_refused";
    lost_owner_of_a_workspace_is_caught: WorkspaceOwnerLost by
        "owners::workspaces_of_another_owner_are_not_found",
        "owners::workspaces_without_an_owner_are_shared",
        "owners::devices_of_another_owner_are_not_bound_again",
        "owners::default_and_deleted_workspaces_are_nobodys",
        "owners::pages_and_totals_of_an_owner_agree",
        "owners::lists_of_devices_name_no_others";
    list_of_all_owners_is_caught: OwnerIgnored by
        "owners::lists_of_owners_show_their_own";
    lost_mark_of_shared_data_is_caught: Loses(Labels) by "owners::shared_data_is_only_added_to";
    last_session_of_another_binding_is_caught: LastSessionStays by
        "bindings::the_last_session_belongs_to_the_binding";
    lost_open_calls_are_caught: Loses(OpenCalls) by
        "machine::open_calls_and_spans_are_closed_once",
        "lineage::no_fork_cuts_a_tool_call_from_its_result";
    lost_origin_is_caught: Loses(Origin) by "lineage::child_is_linked_at_creation_and_reports_its_end";
    lost_input_count_is_caught: Loses(Pending) by
        "machine::inputs_during_preparation_are_kept_and_served",
        "lists::list_shows_state_reason_and_waiting_inputs";
    lost_reason_is_caught: Loses(Reason) by
        "machine::a_record_is_the_fold_of_its_log",
        "content::record_holds_workspace_creator_and_origin";
    lost_stop_request_is_caught: Loses(Requested) by "machine::an_interrupt_asks_a_run_to_end";
    lost_resources_are_caught: Loses(Resources) by "content::resources_are_replaced_as_a_whole";
    lost_title_is_caught: Loses(Title) by "content::generated_title_does_not_replace_a_chosen_one";
    missing_session_read_as_empty_is_caught: AbsentIsEmpty by
        "nothing_hides::unknown_session_is_not_found";
    fork_of_a_forgotten_tombstone_is_caught: TombstoneForgotten by
        "lineage::deleted_session_cannot_become_a_parent";
    blocking_dropped_read_is_caught: DroppedReadBlocks by "atomic::dropped_reads_leave_the_store_usable";
    inclusive_range_start_is_caught: AfterIsInclusive by
        "bounded::read_returns_the_requested_range",
        "bounded::following_gives_every_event_once";
    off_by_one_page_of_growing_session_is_caught: PageOffByOne by
        "bounded::pages_stay_complete_while_the_session_grows";
    forgotten_author_is_caught: ActorForgotten by "content::event_authors_are_kept";
    forgotten_run_is_caught: RunForgotten by "fenced::run_writes_while_its_lease_is_live";
    lost_early_times_are_caught: EarlyTimesLost by "content::earliest_and_latest_times_are_kept";
    truncated_long_texts_are_caught: LongTextsCut by "content::ten_mebibytes_come_back_byte_for_byte";
    emptied_thinking_events_are_caught: ThoughtsEmptied by "content::every_known_type_round_trips";
    lagging_list_is_caught: ListLags by
        "search::an_index_changes_no_hit",
        "search::what_was_said_is_found_in_any_language",
        "search::searches_keep_the_order_of_a_session_against_its_clocks",
        "atomic::the_list_is_as_new_as_the_log",
        "lists::list_shows_the_current_state";
    ignored_workspace_filter_is_caught: WorkspaceIgnored by "lists::a_workspace_has_many_sessions";
    reversed_list_is_caught: ListReversed by
        "lists::sessions_are_listed_by_last_activity",
        "workspaces::workspaces_are_listed_by_last_access";
    pages_dropping_an_item_are_caught: LaterPagesDropOne by
        "lists::pages_lose_nothing_while_sessions_are_used",
        "lists::pages_of_due_sessions_neither_skip_nor_repeat",
        "workspaces::pages_neither_skip_nor_repeat_if_times_tie",
        "workspaces::pages_lose_nothing_while_workspaces_are_used";
    session_at_limit_zero_is_caught: OneSessionForALimitOfZero by
        "lists::any_page_size_is_served",
        "lists::a_limit_of_zero_gives_nothing";
    workspace_at_limit_zero_is_caught: OneWorkspaceForALimitOfZero by "lists::a_limit_of_zero_gives_nothing";
    binding_at_limit_zero_is_caught: OneBindingForALimitOfZero by "lists::a_limit_of_zero_gives_nothing";
    event_at_limit_zero_is_caught: OneEventForALimitOfZero by "lists::a_limit_of_zero_gives_nothing";
    write_to_a_moved_store_is_caught: MovedIsWritten by "durable::a_moved_store_acknowledges_nothing";
    read_of_a_moved_store_is_caught: MovedIsRead by "durable::a_moved_store_acknowledges_nothing";
    moved_store_reported_as_empty_is_caught: MovedIsAbsent by "durable::a_moved_store_acknowledges_nothing";
    undeletable_damaged_session_is_caught: DamagedSessionStays by "nothing_hides::a_damaged_session_can_be_deleted";
    silently_skipping_rebuild_is_caught: RebuildSkipsSilently by
        "nothing_hides::rebuild_names_the_sessions_it_skipped";
    ignored_pseudonym_is_caught: PseudonymIgnored by
        "owners::a_pseudonym_takes_the_owners_place_in_a_tombstone",
        "owners::a_later_pseudonym_replaces_the_name_and_a_plain_purge_keeps_it";
    pseudonym_of_the_first_purge_only_is_caught: PseudonymTakenOnce by
        "owners::a_later_pseudonym_replaces_the_name_and_a_plain_purge_keeps_it";
    name_brought_back_by_a_plain_purge_is_caught: PlainPurgeBringsTheNameBack by
        "owners::a_later_pseudonym_replaces_the_name_and_a_plain_purge_keeps_it";
    list_of_a_former_name_is_caught: FormerNameListed by
        "owners::a_pseudonym_takes_the_owners_place_in_a_tombstone";
    purge_at_any_head_is_caught: PurgeAtAnyHead by
        "nothing_hides::purge_needs_a_tombstone_at_the_expected_head";
    hidden_tenants_are_caught: TenantsHidden by "tenants::tenants_are_listed_once_they_hold_data";
    tenant_leak_by_lease_or_cursor_is_caught: TenantLeak by
        "tenants::lease_of_one_tenant_affects_no_other",
        "tenants::cursor_shows_nothing_of_another_tenant",
        "tenants::sessions_cannot_be_forked_across_tenants";
    half_applied_dropped_put_is_caught: DroppedPutIsHalfApplied by
        "atomic::a_dropped_write_of_a_workspace_is_whole_or_absent";
    racy_workspace_creation_is_caught: WorkspaceCreationRaces by "one_winner::one_creation_wins_per_workspace_id";
    lost_description_is_caught: DescriptionLost by "workspaces::workspace_is_loaded_as_it_was_put";
    replacing_creation_is_caught: PutReplaces by "workspaces::a_second_creation_changes_nothing";
    put_creating_a_workspace_is_caught: PutCreates by "workspaces::only_a_creation_creates_a_workspace";
    refused_default_workspace_is_caught: DefaultRefused by "workspaces::default_workspace_behaves_like_any_other";
    empty_configuration_as_absent_is_caught: EmptyConfigurationIsNone by "workspaces::configuration_is_kept_byte_for_byte_or_absent";
    ignored_configuration_hash_is_caught: ConfigurationHashIgnored by
        "workspaces::stale_configuration_change_is_refused";
    dropped_workspace_fields_are_caught: WorkspaceFieldsDropped by
        "workspaces::settings_and_unknown_fields_are_kept";
    touch_stepping_back_among_loads_is_caught: TouchStepsBack by
        "workspaces::touches_and_loads_do_not_interfere";
    half_applied_dropped_bind_is_caught: DroppedBindIsHalfApplied by
        "atomic::a_dropped_bind_is_whole_or_absent";
    racy_rebind_is_caught: RebindRaces by "one_winner::one_rebind_wins_per_precondition";
    unknown_device_bound_to_default_is_caught: UnknownDeviceIsDefault by
        "bindings::unknown_device_has_no_binding";
    ignored_bind_precondition_is_caught: BindExpectIgnored by
        "bindings::bind_with_a_failed_precondition_changes_nothing";
    rebinding_first_contact_is_caught: FirstContactMoves by "bindings::a_first_contact_never_moves_a_binding";
    unbind_always_returning_true_is_caught: UnbindingReportsTrue by
        "bindings::unbind_returns_whether_it_was_bound";
    bindings_rewritten_whole_are_caught: BindingsRewrittenWhole by
        "bindings::concurrent_binds_of_many_devices_are_never_lost";
    incomplete_unbind_is_caught: UnbindingLeavesOne by
        "bindings::unbind_workspace_unbinds_only_its_devices";
    case_folded_devices_in_lists_are_caught: DevicesFolded by
        "bindings::bindings_are_listed_once_in_a_stable_order";
    cursor_of_another_query_is_caught: LabelsIgnored by "bindings::cursors_of_other_queries_are_refused";
    blob_cut_to_one_chunk_is_caught: BlobCutToOneChunk by "blobs::blobs_of_any_size_come_back_byte_for_byte";
    off_by_one_blob_range_is_caught: BlobRangeOffByOne by "blobs::ranges_return_the_requested_bytes";
    unordered_blob_list_is_caught: BlobListUnordered by "blobs::blobs_are_listed_by_name_in_pages";
    cut_list_of_many_blobs_is_caught: LongBlobListCut by "blobs::session_with_many_blobs_stays_usable";
    blobs_lost_on_reopening_are_caught: BlobsLostOnReopening by "blobs::blobs_survive_reopening";
    accepted_wrong_content_is_caught: WrongContentAccepted by "blobs::wrong_content_stores_nothing";
    large_blob_read_before_refusal_is_caught: LargeBlobReadFirst by "blobs::too_large_blob_is_refused_unread";
    accepted_missing_blobs_are_caught: MissingBlobsAccepted by
        "blobs::commit_without_its_blobs_is_not_applied",
        "blobs::wrong_content_stores_nothing",
        "blobs::sweep_removes_only_what_no_event_names";
    unnamed_missing_blobs_are_caught: OneMissingBlobNamed by "blobs::commit_without_its_blobs_is_not_applied";
    creation_without_its_blobs_is_caught: MissingBlobsOfCreationsAccepted by
        "blobs::session_is_created_with_its_blobs",
        "blobs::sweep_without_session_spares_sessions";
    restored_commit_without_its_blobs_is_caught: MissingBlobsOfRestoredAccepted by
        "blobs::restored_commits_find_their_blobs";
    unchecked_blob_size_is_caught: BlobSizeUnchecked by "blobs::wrong_size_in_an_event_is_refused";
    accepted_blob_of_the_parent_is_caught: BlobsOfParentsAccepted by "blobs::blob_of_another_session_is_missing";
    blobs_checked_before_the_replay_are_caught: BlobsCheckedBeforeReplay by "blobs::replayed_commit_needs_no_blob";
    blobs_shared_between_tenants_are_caught: TenantLeak by "blobs::blobs_belong_to_one_tenant";
    listed_unfinished_put_is_caught: UnfinishedPutListed by "blobs::dropped_put_leaves_a_blob_whole_or_absent";
    blocking_dropped_reader_is_caught: DroppedReaderBlocks by "blobs::dropped_reader_blocks_nothing";
    refused_concurrent_put_is_caught: ConcurrentPutRefused by "blobs::concurrent_puts_of_one_blob_succeed";
    reader_ended_by_a_removal_is_caught: RemovalEndsReaders by "blobs::readers_get_right_bytes_or_an_error";
    undeclared_blobs_are_caught: BlobsUndeclared by "blobs::store_without_blobs_refuses_them";
    sweep_of_named_blobs_is_caught: SweepRemovesNamed by
        "blobs::sweep_removes_only_what_no_event_names",
        "blobs::concurrent_sweeps_remove_no_named_blob",
        "blobs::deleted_session_takes_no_blob";
    sweep_keeping_orphans_is_caught: SweepKeepsOrphans by
        "blobs::sweep_removes_only_what_no_event_names",
        "blobs::sweep_without_session_spares_sessions";
    sweeping_dry_run_is_caught: DryRunSweeps by
        "blobs::sweep_removes_only_what_no_event_names",
        "blobs::sweep_without_session_spares_sessions";
    sweep_of_none_sweeping_all_is_caught: SweepOfNoneSweepsAll by
        "blobs::sweep_without_session_spares_sessions";
    sweep_deciding_early_is_caught: SweepDecidesEarly by "blobs::concurrent_sweeps_remove_no_named_blob";
    lost_early_blobs_are_caught: EarlyBlobsLost by "blobs::session_is_created_with_its_blobs";
    fork_without_its_lineage_reading_blobs_is_caught: Loses(Lineage) by "blobs::fork_reads_the_blobs_of_its_parent";
    purge_keeping_blobs_is_caught: PurgeKeepsBlobs by
        "blobs::purge_keeps_the_blobs_that_forks_read",
        "blobs::deleted_session_takes_no_blob",
        "blobs::replayed_commit_needs_no_blob";
    purge_taking_blobs_from_forks_is_caught: PurgeTakesBlobsFromForks by
        "blobs::purge_keeps_the_blobs_that_forks_read";
    blob_taken_by_a_deleted_session_is_caught: DeletedTakesBlobs by "blobs::deleted_session_takes_no_blob";
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
fn clause_names_are_unique() {
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
fn every_clause_catches_a_fault() {
    let excepted = |path: &str| NEVER_SEEN_TO_FAIL.iter().any(|(never, _)| *never == path);
    for clause in clauses() {
        let path = clause.path();
        let elsewhere = matches!(
            clause.needs,
            Needs::Processes
                | Needs::Crash
                | Needs::PowerLoss
                | Needs::Faults
                | Needs::TenantFaults
                | Needs::TenantPowerLoss
                | Needs::BlobCrash
                | Needs::BlobPowerLoss
                | Needs::BlobFaults
        );
        let seen = SEEN_TO_FAIL.contains(&&*path);
        assert!(seen != (elsewhere || excepted(&path)), "{path}: seen to fail here: {seen}");
    }
    for (path, why) in NEVER_SEEN_TO_FAIL {
        assert!(clauses().iter().any(|clause| clause.path() == *path), "there is no clause {path} ({why})");
    }
}
