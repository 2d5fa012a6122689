"""Administration of a cluster as a library: values in, values out; prints nothing and knows no command line.

Requests go through librdkafka (`clients`), or through `cluster` where librdkafka lacks them. Failures are `errors`.
"""
