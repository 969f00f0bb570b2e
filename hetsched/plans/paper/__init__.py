"""The plans of Ilic & Sousa: factoring by two, multi-installment processing."""
