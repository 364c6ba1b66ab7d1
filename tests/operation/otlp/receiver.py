"""A collector of OpenTelemetry for tests: reads each request with the official messages, and prints a line about it.

The first line is the port. The words on the command line are the statuses of the first answers; all others are 200.
"""

import base64
import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

statuses = [int(word) for word in sys.argv[1:]]


def attributes(of):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of}


def metrics(body):
    (found,) = json_format.Parse(body, ExportMetricsServiceRequest()).resource_metrics
    told = {"resource": attributes(found.resource.attributes), "metrics": {}}
    for metric in found.scope_metrics[0].metrics:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        # Sums only grow, and sums and histograms count from the start of the broker.
        assert kind != "sum" or data.is_monotonic, metric
        assert kind == "gauge" or data.aggregation_temporality == 2, metric
        for point in data.data_points:
            assert 0 < point.start_time_unix_nano <= point.time_unix_nano, point
            labels = ",".join(f"{key}={value}" for key, value in attributes(point.attributes).items())
            if kind == "histogram":
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, point
                assert sum(point.bucket_counts) == point.count, point
                value = point.count
            else:
                value = point.as_double
            told["metrics"][f"{metric.name}{{{labels}}} {metric.unit} {kind}"] = value
    return told


def logs(body):
    (found,) = json_format.Parse(body, ExportLogsServiceRequest()).resource_logs
    lines = []
    for record in found.scope_logs[0].log_records:
        assert record.time_unix_nano > 0, record
        lines.append([record.severity_text, record.body.string_value, attributes(record.attributes)])
    return {"resource": attributes(found.resource.attributes), "lines": lines}


def traces(body):
    # JSON has identifiers in hexadecimal, and the official messages expect base64 there.
    asked = json.loads(body)
    for span in asked["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    (found,) = json_format.ParseDict(asked, ExportTraceServiceRequest()).resource_spans
    spans = []
    for span in found.scope_spans[0].spans:
        assert (len(span.trace_id), len(span.span_id)) == (16, 8), span
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
        spans.append(
            {
                "name": span.name,
                "trace": span.trace_id.hex(),
                "span": span.span_id.hex(),
                "parent": span.parent_span_id.hex(),
                "is_error": span.status.code == 2,
                "attributes": attributes(span.attributes),
            }
        )
    return {"resource": attributes(found.resource.attributes), "spans": spans}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json", self.headers
        told = {"/v1/metrics": metrics, "/v1/logs": logs, "/v1/traces": traces}[self.path](body)
        status = statuses.pop(0) if statuses else 200
        told |= {"path": self.path, "status": status, "authorization": self.headers.get("Authorization")}
        print(json.dumps(told), flush=True)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
