//! Erasures that are cut off at each write, and finished by the next call.

use agent_workspace::erasure::Subject;

use crate::cut::Cut;
use crate::erasure_cutter::cut_at_each;

#[tokio::test]
async fn an_erasure_of_a_person_cut_at_each_write_is_finished_by_the_next_call_in_memory() {
    cut_at_each("memory", false, None, &Cut::ALL).await;
    cut_at_each("memory", true, None, &Cut::ALL).await;
}

#[tokio::test]
async fn an_erasure_of_a_person_cut_at_each_write_is_finished_by_the_next_call_on_files() {
    cut_at_each("files", true, None, &[Cut::DiesAfter]).await;
}

#[tokio::test]
async fn an_erasure_of_a_person_cut_at_each_write_is_finished_by_the_next_call_on_sqlite() {
    cut_at_each("sqlite", true, None, &[Cut::DiesAfter]).await;
}

#[tokio::test]
async fn an_erasure_of_a_tenant_cut_at_each_write_is_finished_by_the_next_call() {
    for (store, is_sealed) in [("memory", false), ("memory", true), ("sqlite", true), ("files", true)] {
        cut_at_each(store, is_sealed, Some(Subject::Tenant), &Cut::ALL).await;
    }
}
