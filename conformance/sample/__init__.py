"""Sampled and steered tokens: drafts change neither tokens nor law, nor the states behind them."""
