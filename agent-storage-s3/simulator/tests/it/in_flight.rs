//! Processes that end while several of their requests are in flight, of which some are lost: what they leave behind is
//! right, and goes.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use s3_simulator::{Connector, FaultPlan};
use tokio::time::{sleep, timeout};

use crate::cuts::{CASES, Case, STUCK, World, aftermath, set_up, undisturbed};
use crate::support::is_thorough;

/// What is sent within this time is sent at one moment. No answer is as fast.
const MOMENT: Duration = Duration::from_millis(1);
/// After this, each request in flight has landed. No operation sends another one by then unless it gets an answer.
const LANDED: Duration = Duration::from_millis(200);

/// Time in which a process does all that does not wait for the request that was lost, and does not send that one again.
const STALLED: Duration = Duration::from_secs(5);

/// What becomes of the requests of a process from its n-th one on. What it has sent before lands.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// The n-th one is lost, and all others of that moment land. No answer arrives any more.
    One(usize),
    /// The n-th one lands, and all others of that moment are lost. No answer arrives any more.
    Others(usize),
    /// The n-th one is lost, and the process goes on with what does not wait for its answer.
    Slow(usize),
}

impl Lost {
    /// Returns the number of the request with which the process ends, or begins to wait in vain.
    fn at(self) -> usize {
        let (Self::One(n) | Self::Others(n) | Self::Slow(n)) = self;
        n
    }
}

/// State of a process.
#[derive(Debug)]
struct Process {
    /// `None` until the operation begins.
    lost: Option<Lost>,
    sent: usize,
    /// Number of requests that were sent and not answered.
    in_flight: usize,
    /// No answer arrives any more.
    is_dead: bool,
}

/// Connector of a process that ends.
#[derive(Clone, Debug)]
struct Ending {
    connector: Connector,
    process: Arc<Mutex<Process>>,
}

impl Ending {
    fn new(connector: Connector) -> Self {
        let process = Process { lost: None, sent: 0, in_flight: 0, is_dead: false };
        Self { connector, process: Arc::new(Mutex::new(process)) }
    }
}

impl HttpConnector for Ending {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Ending {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some((lost, n)) = self.process.lock().unwrap().send() else {
            return self.connector.call(request).await;
        };
        sleep(MOMENT).await;
        let is_lost = match lost {
            Lost::One(lost) | Lost::Slow(lost) => n == lost,
            Lost::Others(landed) => self.process.lock().unwrap().is_dead && n != landed,
        };
        if is_lost {
            return pending().await;
        }
        let answer = self.connector.call(request).await;
        if self.process.lock().unwrap().is_dead {
            return pending().await;
        }
        self.process.lock().unwrap().in_flight -= 1;
        answer
    }
}

impl Process {
    /// Counts a request of the operation, and returns its number and what is to be lost.
    fn send(&mut self) -> Option<(Lost, usize)> {
        let lost = self.lost?;
        self.sent += 1;
        self.in_flight += 1;
        self.is_dead |= self.sent == lost.at() && !matches!(lost, Lost::Slow(_));
        Some((lost, self.sent))
    }
}

/// Runs a case in a process that ends. Returns the world, and the number of requests that were in flight then; `None` if the
/// operation ended before.
async fn run(case: &Case, lost: Lost) -> (World, Option<usize>) {
    let world = set_up(case).await;
    let ending = Ending::new(world.simulator.connector("ending"));
    let config = world.config(ending.clone());
    let store = config.clone().open().await.unwrap();
    *world.opens.lock().unwrap() = Some(config);
    world.simulator.set_plan(FaultPlan::healthy());
    ending.process.lock().unwrap().lost = Some(lost);
    let dead = async {
        while ending.process.lock().unwrap().sent < lost.at() {
            sleep(MOMENT).await;
        }
        sleep(if matches!(lost, Lost::Slow(_)) { STALLED } else { LANDED }).await;
    };
    let ended = tokio::select! {
        biased;
        () = dead => false,
        done = timeout(STUCK, (case.step)(&world, &store)) => {
            done.expect("an operation ends").unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
            true
        }
    };
    let mut process = ending.process.lock().unwrap();
    // What it has put off is not sent any more.
    process.is_dead = true;
    let in_flight = process.in_flight;
    drop(process);
    *world.opens.lock().unwrap() = None;
    world.simulator.set_plan(FaultPlan::quiet());
    (world, (!ended).then_some(in_flight))
}

/// A process that ends while requests are in flight leaves what one leaves that ends between two requests, whichever of
/// them is lost and whichever lands, and however far those get that do not wait for it.
#[tokio::test(start_paused = true)]
async fn a_kill_with_requests_in_flight_leaves_nothing_wrong() {
    let (mut faults, mut together) = (Vec::new(), BTreeMap::new());
    for case in CASES {
        let expected = undisturbed(case).await;
        for at in 1.. {
            let (_, in_flight) = run(case, Lost::One(at)).await;
            let Some(in_flight) = in_flight else { break };
            // One request alone is the matter of kills between requests.
            if in_flight == 1 {
                continue;
            }
            let most: &mut usize = together.entry(case.name).or_default();
            *most = in_flight.max(*most);
            for (n, lost) in [Lost::One(at), Lost::Others(at), Lost::Slow(at)].into_iter().enumerate() {
                // In turn done again and not; both where each cut is tried in every way.
                for again in [true, false] {
                    if !is_thorough() && again == (at + n).is_multiple_of(2) {
                        continue;
                    }
                    let (world, in_flight) = run(case, lost).await;
                    let in_flight = in_flight.expect("the same requests each time");
                    let what = format!("{}, {lost:?} of {in_flight}, again: {again}", case.name);
                    faults.extend(aftermath(&world, case, &expected, again, &what).await);
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(together.len() >= 14, "operations with several requests in flight: {together:?}");
}
