"""What KEDA is told on Kubernetes: a scaler that pushes, by its own protocol (`externalscaler.proto`, gRPC).

`board.py` holds what the policy has decided, `scaler.py` answers from it, `server.py` listens. Needs the extra
`kubernetes`; nothing else of the autoscaler imports it but `app.py`, if it is asked to listen.
"""
