"""Serve the CTC loss of cudnnCTCLoss and cudnnCTCLoss_v8."""
