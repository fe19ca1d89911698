//! One account at a provider: what it takes, and what it answers.

use crate::account::Account;
use crate::message::{Answer, Request};
use crate::rule::{Checked, Item, Refusal, Rule, Wire};
use crate::{anthropic, chat, gemini, history, responses};

/// One account at a provider, which signs what it answers.
#[derive(Clone, Debug)]
pub struct Provider {
    wire: Wire,
    account: Account,
}

impl Provider {
    /// Creates an account.
    pub fn new(wire: Wire) -> Self {
        Self { wire, account: Account::new() }
    }

    /// Sets the name of the account; signatures of one account are forged to another one.
    #[must_use]
    pub fn with_account(mut self, account: &str) -> Self {
        account.clone_into(&mut self.account.name);
        self
    }

    /// Takes every signature as current: for recorded requests, whose signatures only the real provider knows.
    #[must_use]
    pub const fn trusting(mut self) -> Self {
        self.account.verifies = false;
        self
    }

    /// Returns the API.
    pub const fn wire(&self) -> Wire {
        self.wire
    }

    /// Checks a request against the [rules](Rule) of the API.
    ///
    /// # Errors
    ///
    /// The first rule that the request breaks.
    pub fn check(&self, request: &Request) -> Result<Checked, Refusal> {
        let body = request.body();
        if !body.is_object() {
            return Err(Refusal::new(Rule::Shape, "We could not parse the JSON body of your request."));
        }
        history::check(self.wire, &body)?;
        match self.wire {
            Wire::Anthropic => anthropic::check(&self.account, request, &body),
            Wire::Responses => responses::check(&self.account, request, &body),
            Wire::Gemini => gemini::check(&self.account, request, &body),
            Wire::Chat => chat::check(&body),
        }
    }

    /// Answers a request with these items, streamed.
    pub fn answer(&mut self, request: &Request, items: &[Item]) -> Answer {
        let body = request.body();
        self.account.answers += 1;
        match self.wire {
            Wire::Anthropic => anthropic::give(&mut self.account, request, &body, items),
            Wire::Responses => responses::give(&mut self.account, request, &body, items),
            Wire::Gemini => gemini::give(&mut self.account, request, &body, items),
            Wire::Chat => chat::give(&self.account, items),
        }
    }
}
