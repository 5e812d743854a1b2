//! Triton's model configuration and statistics, over HTTP and gRPC.

use std::time::{Duration, Instant};

use hipvit_serve::proto::model_instance_group::Kind;
use hipvit_serve::proto::{DataType, ModelConfigRequest, ModelStatisticsRequest, StatisticDuration};
use serde_json::{Value, json};

use crate::support::server::grpc::{block_on, client};
use crate::support::server::{MODEL, Running, options, samples};

#[test]
fn the_configuration_says_how_a_model_is_run() {
    let mut options = options();
    options.max_batch = 3;
    options.max_delay = Duration::from_micros(250);
    options.pixel_values = true;
    let running = Running::new(options);
    let config = running.get("/v2/models/digits/config").json();
    assert_eq!(config, running.get("/v2/models/digits/versions/1/config").json());
    assert_eq!(
        (&config["name"], &config["backend"]),
        (&json!(MODEL), &json!("hipvit"))
    );
    assert_eq!(config["max_batch_size"], 3);
    assert_eq!(config["dynamic_batching"]["max_queue_delay_microseconds"], 250);
    let input = |index: usize| {
        let input = &config["input"][index];
        (
            input["name"].clone(),
            input["data_type"].clone(),
            input["dims"].clone(),
        )
    };
    // Without the batch dimension.
    assert_eq!(input(0), (json!("image"), json!("TYPE_STRING"), json!([1])));
    assert_eq!(
        input(1),
        (json!("pixels"), json!("TYPE_UINT8"), json!([-1, -1, 3]))
    );
    assert_eq!(
        input(2),
        (json!("pixel_values"), json!("TYPE_FP32"), json!([3, 32, 32]))
    );
    assert_eq!(config["input"][0]["optional"], true);
    assert_eq!(
        config["output"][0],
        json!({
            "name": "logits", "data_type": "TYPE_FP32", "dims": [10], "label_filename": "", "is_shape_tensor": false,
        })
    );
    assert_eq!(
        config["instance_group"],
        json!([{"name": "digits_0", "kind": "KIND_CPU", "count": 1, "gpus": []}])
    );
    assert_eq!(running.get("/v2/models/cats/config").status, 404);
    assert_eq!(running.get("/v2/models/digits/versions/9/config").status, 404);

    block_on(async {
        let mut client = client(running.address).await;
        let request = |name: &str| ModelConfigRequest {
            name: name.into(),
            version: String::new(),
        };
        let message = client
            .model_config(request(MODEL))
            .await
            .unwrap()
            .into_inner()
            .config
            .unwrap();
        assert_eq!((message.name.as_str(), message.max_batch_size), (MODEL, 3));
        assert_eq!(message.input[0].data_type(), DataType::TypeString);
        assert_eq!(message.output[0].dims, [10]);
        assert_eq!(message.instance_group[0].kind(), Kind::Cpu);
        let status = client.model_config(request("cats")).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound);
    });
}

#[test]
fn statistics_count_requests_batches_and_their_times() {
    let mut options = options();
    options.max_batch = 2;
    let running = Running::new(options);
    let statistics = || running.get("/v2/models/digits/stats").json()["model_stats"][0].clone();
    let before = statistics();
    assert_eq!(
        (&before["name"], &before["version"]),
        (&json!(MODEL), &json!("1"))
    );
    assert_eq!(before["last_inference"], 0);
    assert_eq!(before["inference_stats"]["success"], json!({"count": 0, "ns": 0}));
    assert_eq!(before["batch_stats"], json!([]));

    let begin = Instant::now();
    for digits in [&[1][..], &[2, 3, 4], &[5, 6, 7, 8]] {
        assert_eq!(running.infer(&samples(digits)).status, 200);
    }
    // One that fails for its image, one for its output.
    let broken = json!({"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": ["AAAA"]}]});
    assert_eq!(running.infer(&broken).status, 400);
    let mut wrong = samples(&[1]);
    wrong["outputs"] = json!([{"name": "none"}]);
    assert_eq!(running.infer(&wrong).status, 400);
    let took = begin.elapsed().as_nanos() as u64;

    let after = statistics();
    assert_eq!(after["inference_count"], 8);
    let times = &after["inference_stats"];
    let of = |part: &str| {
        (
            times[part]["count"].as_u64().unwrap(),
            times[part]["ns"].as_u64().unwrap(),
        )
    };
    assert_eq!((of("success").0, of("fail").0), (3, 2));
    let mut parts = 0;
    for part in ["queue", "compute_input", "compute_infer", "compute_output"] {
        assert_eq!(of(part).0, 3, "{part}");
        parts += of(part).1;
    }
    for part in ["success", "fail", "queue", "compute_input", "compute_infer"] {
        let (_, ns) = of(part);
        assert!(ns > 0 && ns <= took, "{part}: {ns} of {took}");
    }
    assert!(parts > of("compute_infer").1);
    assert_eq!((of("cache_hit"), of("cache_miss")), ((0, 0), (0, 0)));
    assert!(after["last_inference"].as_u64().unwrap() > 1_700_000_000_000);
    // Every execution has a size, and all of them the images.
    let batches = after["batch_stats"].as_array().unwrap();
    let sum = |of: &dyn Fn(&Value) -> u64| batches.iter().map(of).sum::<u64>();
    let count = |batch: &Value| batch["compute_infer"]["count"].as_u64().unwrap();
    assert_eq!(sum(&count), after["execution_count"].as_u64().unwrap());
    assert_eq!(
        sum(&|batch| batch["batch_size"].as_u64().unwrap() * count(batch)),
        8
    );
    assert!(sum(&|batch| batch["compute_infer"]["ns"].as_u64().unwrap()) > 0);
    assert!(
        batches
            .iter()
            .all(|batch| batch["batch_size"].as_u64().unwrap() <= 2)
    );

    let all = running.get("/v2/models/stats").json();
    assert_eq!(all["model_stats"][0]["inference_count"], 8);
    assert_eq!(running.get("/v2/models/digits/versions/1/stats").status, 200);
    assert_eq!(running.get("/v2/models/digits/versions/2/stats").status, 404);
    assert_eq!(running.get("/v2/models/cats/stats").status, 404);

    block_on(async {
        let mut client = client(running.address).await;
        for name in [MODEL, ""] {
            let request = ModelStatisticsRequest {
                name: name.into(),
                version: String::new(),
            };
            let answer = client.model_statistics(request).await.unwrap().into_inner();
            let model = &answer.model_stats[0];
            assert_eq!((model.name.as_str(), model.inference_count), (MODEL, 8));
            let times = model.inference_stats.as_ref().unwrap();
            let (count, ns) = of("success");
            assert_eq!(times.success, Some(StatisticDuration { count, ns }));
            assert_eq!(model.batch_stats.len(), batches.len());
        }
        let request = ModelStatisticsRequest {
            name: "cats".into(),
            version: String::new(),
        };
        assert!(client.model_statistics(request).await.is_err());
    });
}
