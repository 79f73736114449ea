//! What the tests of weir rely on when they lose replies.

use std::time::Duration;

use testkit::{
    proxy::{Mode, Proxy},
    redis::{self as kit, RedisServer},
};

const DEADLINE: Duration = Duration::from_secs(30);

fn connect(proxy: &Proxy) -> redis::RedisResult<redis::Connection> {
    kit::connect(DEADLINE, &redis::Client::open(format!("redis://{}", proxy.address()))?)
}

#[test]
fn a_lost_reply_is_one_whose_request_was_carried_out() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    let proxy = Proxy::start(&format!("127.0.0.1:{}", server.port())).unwrap();
    let mut connection = connect(&proxy).unwrap();
    assert_eq!(redis::cmd("INCR").arg("n").query::<i64>(&mut connection).unwrap(), 1);

    proxy.set(Mode::LoseReply);
    let lost = redis::cmd("INCR").arg("n").query::<i64>(&mut connection).unwrap_err();
    assert!(lost.is_connection_dropped() || lost.is_io_error(), "{lost}");
    assert_eq!(server.query::<i64>(&["GET", "n"]).unwrap(), 2);
    assert_eq!(proxy.mode(), Mode::Pass);

    let mut connection = connect(&proxy).unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    proxy.set(Mode::Stall);
    assert!(redis::cmd("INCR").arg("n").query::<i64>(&mut connection).unwrap_err().is_timeout());
    assert_eq!(server.query::<i64>(&["GET", "n"]).unwrap(), 2);

    proxy.set(Mode::Refuse);
    assert!(connect(&proxy).is_err());
    proxy.set(Mode::Pass);
    assert!(connect(&proxy).is_ok());
}
