//! Dates of the real servers: each answer carries the time, by which the store measures ages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::async_trait;
use agent_core::store::SessionQuery;
use agent_core::{SessionStore, WorkspaceId};
use agent_storage_s3::S3Config;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use s3_servers::{Kind, Server};

/// Sends requests as usual, and notes the header `Date` of each answer.
#[derive(Clone, Debug, Default)]
struct Dates(Arc<Mutex<Vec<Option<String>>>>);

#[derive(Debug)]
struct Recording(HttpClient, Dates);

impl HttpConnector for Dates {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Recording(ReqwestConnector::default().connect(options)?, self.clone())))
    }
}

#[async_trait]
impl HttpService for Recording {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let date = response.headers().get("date").map(|date| date.to_str().unwrap().to_owned());
        self.1.0.lock().unwrap().push(date);
        Ok(response)
    }
}

async fn reports_the_time(kind: Kind) {
    let server = match Server::start(kind) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let work = async {
        let dates = Dates::default();
        let config = S3Config::from_url(&server.address("dates")).unwrap();
        let store = config.with_http_connector(dates.clone()).open().await.unwrap();
        let query = SessionQuery::new().with_workspace(WorkspaceId::DEFAULT);
        assert_eq!(store.list(query).await.unwrap().items, []);
        let dates = dates.0.lock().unwrap().clone();
        assert!(dates.len() > 10, "{dates:?}");
        for date in dates {
            // As in `Sun, 15 Feb 2026 10:30:00 GMT`.
            let date = date.expect("each answer has a date");
            assert!(date.len() == 29 && &date[3..5] == ", " && date.ends_with(" GMT"), "{date}");
        }
    };
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("the server answers in time");
}

#[tokio::test]
#[ignore = "needs Ceph; `.ci/full` runs it"]
async fn ceph_reports_the_time() {
    reports_the_time(Kind::Ceph).await;
}

#[tokio::test]
async fn ministack_reports_the_time() {
    reports_the_time(Kind::Ministack).await;
}

#[tokio::test]
#[ignore = "needs Azurite; `.ci/full` runs it"]
async fn azurite_reports_the_time() {
    reports_the_time(Kind::Azurite).await;
}
