//! The proof of the suite: backends that are broken in one way each, and the clauses that catch them.

#![allow(clippy::panic, clippy::expect_used, reason = "a test's helpers")]

mod store;

use agent_storage_conformance::{Clause, Settings, check, clauses};

use store::{Broken, Fault};

fn run(fault: Fault, path: &str) -> Result<(), String> {
    let clause = clauses().into_iter().find(|clause| clause.path() == path);
    let clause = clause.unwrap_or_else(|| panic!("there is no clause {path}"));
    check(Broken(fault), &clause, Settings::new(200, 7))
}

/// Each fault is caught by each of these clauses; the same store without the fault passes them.
fn is_caught(fault: Fault, paths: &[&str]) {
    for path in paths {
        if let Err(report) = run(Fault::None, path) {
            panic!("{path} fails on a store that is not broken:\n{report}");
        }
        let report = run(fault, path).expect_err(path);
        assert!(!report.contains("is left out"), "{report}");
        for part in ["clause    ", "steps", "expected  ", "seen      ", Settings::SEED, path] {
            assert!(report.contains(part), "the report lacks {part:?}:\n{report}");
        }
    }
}

macro_rules! caught {
    ($($(#[$doc:meta])* $test:ident: $fault:ident by $($path:literal),+;)+) => {
        $($(#[$doc])* #[test] fn $test() {
            is_caught(Fault::$fault, &[$($path),+]);
        })+
    };
}

caught! {
    a_lost_update: LostUpdate by
        "one_winner::x03_f10_one_commit_wins_per_expectation",
        "one_winner::f10_a_stale_expectation_is_a_conflict_with_the_head";
    a_half_commit_that_is_visible: HalfCommitVisible by "atomic::x02_a_commit_of_many_events_is_seen_whole";
    a_refused_commit_that_leaves_its_start: RefusedCommitLeavesItsStart by
        "atomic::x02_r04_a_commit_that_is_refused_at_its_last_step_leaves_nothing";
    a_dropped_commit_that_is_half_applied: DroppedCommitIsHalfApplied by
        "atomic::x02_a_dropped_commit_is_whole_or_absent";
    a_dropped_commit_that_blocks_the_store: DroppedCommitBlocksTheStore by
        "atomic::x02_a_dropped_commit_is_whole_or_absent",
        "atomic::x02_a_dropped_creation_is_whole_or_absent";
    an_acknowledgement_before_anything_is_stored: AcknowledgedBeforeStored by
        "one_winner::x03_a22_what_one_handle_wrote_another_reads",
        "no_double::o04_x08_a_commit_sent_again_after_reopening_is_one";
    a_commit_id_that_is_ignored: CommitIdIgnored by
        "no_double::o04_a_commit_sent_again_at_once_is_one",
        "no_double::o04_x03_a_commit_sent_eight_times_at_the_same_moment_is_one",
        "no_double::o04_a_commit_sent_again_after_15_commits_is_one";
    a_replay_that_is_checked_after_the_fence: ReplayCheckedAfterTheFence by
        "no_double::o04_o12_a_commit_sent_again_after_a_take_over_is_answered";
    a_fence_that_is_ignored: FenceIgnored by
        "fenced::o12_a_run_that_was_taken_over_writes_nothing_more",
        "fenced::o12_x03_a_late_write_and_a_take_over_have_an_order",
        "fenced::o12_an_epoch_that_never_was_writes_nothing";
    an_ended_run_that_may_write: EndedRunMayWrite by "fenced::o12_an_ended_run_writes_nothing_more";
    a_look_that_is_a_sign_of_life: LookingIsASignOfLife by
        "fenced::o12_signs_of_life_are_seen_and_are_no_events";
    damage_that_is_taken_for_absence: CorruptAsAbsent by
        "nothing_hides::a16_x01_damaged_bindings_are_no_missing_bindings";
    a_damaged_event_that_is_skipped: DamagedEventSkipped by
        "nothing_hides::x01_a30_a_damaged_event_is_reported_and_the_rest_is_read",
        "nothing_hides::x01_a30_a_damaged_session_is_never_started_anew";
    a_damaged_workspace_that_is_hidden: DamagedWorkspaceHidden by
        "nothing_hides::a04_a05_a_damaged_workspace_is_named_and_not_replaced";
    an_index_that_is_taken_for_the_truth: IndexIsTheTruth by
        "nothing_hides::x08_what_is_derived_is_rebuilt_to_the_same_answers";
    a_tombstone_that_is_forgotten: TombstoneForgotten by "nothing_hides::x01_r13_a_deleted_session_is_a_tombstone";
    a_purge_that_harms_a_child: PurgeHarmsAChild by
        "nothing_hides::r13_r17_a_purge_keeps_what_descendants_read",
        "lineage::r17_r13_lineage_is_known_after_the_parent_is_deleted";
    a_conflict_without_the_head: ConflictHidesTheHead by
        "one_winner::f10_a_stale_expectation_is_a_conflict_with_the_head",
        "no_double::o04_a_commit_sent_again_after_300_commits_is_one";
    a_refusal_that_is_in_doubt: RefusalsInDoubt by "outcomes::x01_a_refused_write_says_that_it_did_not_happen";
    an_error_that_quotes_what_was_said: ErrorsQuotePayloads by
        "outcomes::x01_errors_name_the_object_and_hide_what_was_said";
    a_page_that_is_off_by_one: PageOffByOne by "bounded::r15_o21_any_page_size_gives_every_event_once";
    a_page_that_grows_too_large: PageTooLarge by "bounded::r15_a_page_ends_before_it_grows_too_large";
    a_read_from_the_wrong_end: NewestIsOldest by
        "bounded::r15_o21_a_read_gives_the_range_that_was_asked_for",
        "bounded::a23_a_long_session_is_written_and_read_at_its_end";
    types_that_are_not_filtered: TypesIgnored by "bounded::r15_events_are_filtered_by_type";
    a_wait_that_ends_early: WaitingEndsEarly by "bounded::o21_waiting_ends_with_the_next_event";
    a_clearing_that_leaks: ClearLeaks by
        "content::a25_a26_the_system_prompt_and_the_metadata_outlive_clearing",
        "atomic::a27_a_clearing_is_seen_whole";
    numbers_that_are_rewritten: NumbersRewritten by "content::n16_x05_numbers_of_any_size_are_not_rewritten";
    unknown_fields_that_are_dropped: UnknownFieldsDropped by "content::o03_n16_unknown_types_and_fields_are_kept";
    line_ends_that_are_rewritten: LineEndsRewritten by "content::x05_a22_r14_any_text_comes_back_byte_for_byte";
    an_order_by_the_clock: OrderedByTheClock by
        "content::x07_r14_the_order_is_the_sequence_when_the_clock_steps_back";
    a_lost_update_among_random_steps: LostUpdate by "sequences::x08_o02_o06_sessions_answer_as_the_reference_does";
    a_page_off_by_one_among_random_steps: PageOffByOne by
        "sequences::x08_o02_o06_sessions_answer_as_the_reference_does";
    a_revision_ignored_among_random_steps: PutIgnoresTheRevision by
        "sequences::a02_a15_x08_workspaces_and_bindings_answer_as_the_reference_does";
    a_cursor_that_skips_ties: CursorSkipsTies by "lists::n09_x05_pages_neither_skip_nor_repeat_where_times_tie";
    hidden_sessions_that_are_shown: HiddenShown by
        "lists::r13_archived_and_deleted_sessions_are_hidden_unless_asked_for";
    totals_that_ignore_the_filter: TotalsOfEverything by "lists::r20_n01_n09_filters_and_totals_agree";
    a_due_list_without_an_order: DueInAnyOrder by "lists::o10_o14_what_is_due_is_found_in_its_order";
    a_due_list_without_an_end: DueWithoutAnEnd by "lists::o10_o14_what_is_due_is_found_in_its_order";
    labels_that_are_not_filtered: LabelsIgnored by "lists::r20_n01_n09_filters_and_totals_agree";
    a_fork_that_sees_later_events: ForkSeesLaterEvents by "lineage::r16_a_fork_never_sees_what_its_parent_does_later";
    a_fork_that_loses_its_parent: ForkLosesItsParent by "lineage::r17_forks_and_children_are_listed_by_their_parent";
    a_tenant_that_leaks: TenantLeak by
        "tenants::r01_n01_equal_ids_are_different_things",
        "tenants::r01_nothing_of_another_tenant_is_found",
        "tenants::r01_what_one_tenant_deletes_the_other_keeps";
    a_put_that_ignores_the_revision: PutIgnoresTheRevision by
        "workspaces::a02_f10_n14_a_put_of_an_old_revision_changes_nothing",
        "one_winner::a02_f10_x03_one_put_wins_per_revision";
    a_touch_that_steps_back: TouchStepsBack by "workspaces::a07_a_touch_keeps_the_later_time_and_all_else";
    a_configuration_that_outlives_its_workspace: DeletedConfigurationStays by
        "workspaces::a06_a_deleted_workspace_is_gone_and_its_id_used_up";
    a_configuration_that_is_raced_for: ConfigurationRaces by "one_winner::a10_x03_one_configuration_wins_per_hash";
    a_bind_that_is_raced_for: BindRace by "one_winner::a18_x03_first_contacts_of_one_device_agree";
    an_unbinding_that_erases_a_newer_bind: UnbindErasesANewerBind by
        "bindings::a17_x03_unbinding_a_workspace_never_erases_a_newer_bind";
    devices_that_are_taken_for_each_other: DevicesFolded by "bindings::x05_a15_hostile_device_ids_are_kept_apart";
    a_bind_that_is_lost_on_reopening: BindLostOnReopening by
        "bindings::a16_the_last_bind_wins",
        "durable::x08_all_kinds_of_objects_are_there_after_reopening";
}

/// A35: one call puts a backend to a clause. The store of this test is broken by its faults alone: without one it passes every clause that it can be asked.
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
    let rows = clauses().iter().flat_map(Clause::rows).collect::<std::collections::BTreeSet<_>>();
    assert!(rows.contains("A03") && rows.contains("X08"), "{rows:?}");
}

#[test]
#[ignore]
fn matrix() {
    use std::io::Write;
    let all = clauses();
    let src = include_str!("main.rs");
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let Some(clause) = all.get(i) else { break };
                    if src.contains(&format!("\"{}\"", clause.path())) {
                        continue;
                    }
                    let mut by = String::new();
                    for fault in store::ALL {
                        if let Err(report) = check(Broken(*fault), clause, Settings::new(6, 7)) {
                            if !report.contains("is left out") {
                                by += &format!(" {fault:?}");
                            }
                        }
                    }
                    let mut f = std::fs::OpenOptions::new()
                        .create(true)
                        .append(true)
                        .open("/tmp/matrix.txt")
                        .unwrap();
                    writeln!(f, "{}:{by}", clause.path()).unwrap();
                }
            });
        }
    });
}
