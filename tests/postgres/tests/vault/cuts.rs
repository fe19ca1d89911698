//! Erasures that are cut off at each write, and finished by the next call.

use agent_workspace::erasure::Subject;

use crate::cut::Cut;
use crate::erasure_cutter::cut_at_each;

#[tokio::test]
async fn an_erasure_of_a_person_cut_at_each_write_is_finished_by_the_next_call_on_postgres() {
    cut_at_each("postgres", true, None, &[Cut::DiesAfter]).await;
}

#[tokio::test]
async fn an_erasure_of_a_person_without_keys_cut_at_each_write_is_finished_by_the_next_call_on_postgres() {
    cut_at_each("postgres", false, None, &[Cut::DiesBefore]).await;
}

#[tokio::test]
async fn an_erasure_of_a_tenant_cut_at_each_write_is_finished_by_the_next_call_on_postgres() {
    cut_at_each("postgres", true, Some(Subject::Tenant), &[Cut::DiesAfter]).await;
}
